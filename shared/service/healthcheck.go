package service

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/shared/secure"
)

const healthcheckTimeout = 5 * time.Second

func healthcheckCommand(keys []Key, foreign ...Foreign) *cobra.Command {
	o := newOptions(foreign)
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running service on rest.listen whether it is healthy; exit 0 or 1",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := o.load("this service", optional(keys), os.Environ())
			if err != nil {
				return err
			}
			addr, err := serviceAddress(cfg)
			if err != nil {
				return err
			}
			client, err := healthClient(cfg)
			if err != nil {
				return &ExitError{Code: 1, Err: err}
			}
			defer client.CloseIdleConnections()
			if err := askHealth(cmd.Context(), client, scheme(cfg)+"://"+addr); err != nil {
				return &ExitError{Code: 1, Err: err}
			}
			return nil
		},
	}
	o.flags(cmd)
	return cmd
}

// optional drops Required: the check needs the listen address only, and runs where the rest may not be configured.
func optional(keys []Key) []Key {
	out := append([]Key(nil), keys...)
	for i := range out {
		out[i].Required = false
	}
	return out
}

// serviceAddress is where a client on the same host reaches the service.
func serviceAddress(cfg *Config) (string, error) {
	addr := cfg.String("rest.listen")
	if file := cfg.String("rest.port.file"); file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", &ExitError{Code: 1, Err: fmt.Errorf("rest.port.file: %w", err)}
		}
		addr = strings.TrimSpace(string(data))
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("rest.listen: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port), nil
}

// healthClient trusts the certificate that the service itself is configured with, and shows its token, so that the reason is told.
func healthClient(cfg *Config) (*http.Client, error) {
	tr := http.DefaultTransport.(*http.Transport).Clone()
	if f := secureFile(cfg, "rest.ssl.certificate.location"); f.Path != "" {
		var err error
		if tr.TLSClientConfig, err = secure.PinnedTLS(f); err != nil {
			return nil, err
		}
	}
	// On the same host; a proxy of the environment has nothing to do with it.
	tr.Proxy = nil
	tokens, err := readTokens(cfg, nil)
	if err != nil {
		return nil, err
	}
	if tokens == nil {
		return &http.Client{Transport: tr}, nil
	}
	return &http.Client{Transport: secure.WithToken(tr, func() string { return tokens()[0] })}, nil
}

func askHealth(ctx context.Context, client *http.Client, addr string) error {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, addr+"/healthz", nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", addr, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", addr, err)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("ask %s: %w", addr, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d: %s", addr, resp.StatusCode, strings.TrimSpace(string(body)))
	}
	return nil
}
