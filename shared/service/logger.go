package service

import (
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLogger makes a logger that writes to w. format is json or console; level debug, info, warn or error.
func NewLogger(w io.Writer, format, level string) (*zap.Logger, error) {
	log, _, err := newLogger(w, format, level)
	return log, err
}

// newLogger also returns the level, which can be changed while the logger is in use.
func newLogger(w io.Writer, format, level string) (*zap.Logger, zap.AtomicLevel, error) {
	lvl, err := zapcore.ParseLevel(level)
	atomic := zap.NewAtomicLevelAt(lvl)
	if err != nil {
		return nil, atomic, fmt.Errorf("log.level: %w", err)
	}
	ec := zap.NewProductionEncoderConfig()
	ec.EncodeTime = zapcore.ISO8601TimeEncoder
	ec.EncodeDuration = zapcore.StringDurationEncoder
	var enc zapcore.Encoder
	switch format {
	case "json":
		enc = zapcore.NewJSONEncoder(ec)
	case "console":
		ec.EncodeLevel = zapcore.CapitalLevelEncoder
		enc = zapcore.NewConsoleEncoder(ec)
	default:
		return nil, atomic, fmt.Errorf("log.format: unknown format %q", format)
	}
	sink := zapcore.Lock(zapcore.AddSync(w))
	return zap.New(zapcore.NewCore(enc, sink, atomic), zap.ErrorOutput(sink)), atomic, nil
}
