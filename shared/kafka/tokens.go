package kafka

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-msk-iam-sasl-signer-go/signer"
	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"go.uber.org/zap"
)

// tokenSource makes an access token that is valid now.
type tokenSource func(context.Context) (kafka.OAuthBearerToken, error)

// mskTokens signs a token with the AWS credentials that the environment, a profile, a role or a container gives.
func mskTokens(region string) tokenSource {
	return func(ctx context.Context) (kafka.OAuthBearerToken, error) {
		value, expiresMs, err := signer.GenerateAuthToken(ctx, region)
		if err != nil {
			return kafka.OAuthBearerToken{}, fmt.Errorf("sign an access token for %s: %w", region, err)
		}
		return kafka.OAuthBearerToken{TokenValue: value, Expiration: time.UnixMilli(expiresMs), Principal: "tapedeck"}, nil
	}
}

// fileTokens reads a JWT that something else renews: a projected token of Kubernetes, an agent's.
func fileTokens(path string) tokenSource {
	return func(context.Context) (kafka.OAuthBearerToken, error) {
		b, err := os.ReadFile(path)
		if err != nil {
			return kafka.OAuthBearerToken{}, fmt.Errorf("%s: %w", keyTokenFile, err)
		}
		t, err := parseJWT(strings.TrimSpace(string(b)))
		if err != nil {
			return t, fmt.Errorf("%s (%s): %w", keyTokenFile, path, err)
		}
		if !t.Expiration.After(time.Now()) {
			return t, fmt.Errorf("%s (%s): the token expired at %s; waiting for a new one", keyTokenFile, path, t.Expiration.UTC().Format(time.RFC3339))
		}
		return t, nil
	}
}

// parseJWT reads whose a token is and until when it holds. Its signature is the broker's affair. Errors quote nothing of it.
func parseJWT(value string) (kafka.OAuthBearerToken, error) {
	parts := strings.Split(value, ".")
	if len(parts) != 3 {
		return kafka.OAuthBearerToken{}, errors.New("holds no JWT (three parts with dots between)")
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return kafka.OAuthBearerToken{}, errors.New("holds no JWT: its second part is not base64")
	}
	var claims struct {
		Subject string  `json:"sub"`
		Expires float64 `json:"exp"` // seconds
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return kafka.OAuthBearerToken{}, errors.New("holds no JWT: its second part is not JSON")
	}
	if claims.Expires <= 0 || claims.Expires > 1e11 {
		return kafka.OAuthBearerToken{}, errors.New("the JWT has no usable exp claim")
	}
	return kafka.OAuthBearerToken{TokenValue: value, Principal: claims.Subject, Expiration: time.UnixMilli(int64(claims.Expires * 1000))}, nil
}

const (
	tokenBound    = 30 * time.Second // for making one token
	tokenRetry    = 5 * time.Second  // after a failure
	tokenMinimum  = 500 * time.Millisecond
	tokenPortion  = 0.7 // of a token's life, after which the next is made
	tokenMaximum  = 12 * time.Hour
	noTokenReason = "no access token"
)

// refresher gives a client its access tokens, each well before the last one ends. librdkafka would ask for them by an event, which
// nobody sees while a client is not polled or its queue is full of other things; this needs no event and no traffic.
type refresher struct {
	stop context.CancelFunc
	done chan struct{}
}

// startRefresher begins with src; nil for src is nothing to do. failed, which may be nil, is told why there is no token.
func startRefresher(h kafka.Handle, src tokenSource, log *zap.Logger, failed func(error)) *refresher {
	ctx, cancel := context.WithCancel(context.Background())
	r := &refresher{stop: cancel, done: make(chan struct{})}
	if src == nil {
		close(r.done)
		return r
	}
	go func() {
		defer close(r.done)
		for timer := time.NewTimer(0); ; {
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			timer.Reset(r.refresh(ctx, h, src, log, failed))
		}
	}()
	return r
}

// refresh sets one token and returns when the next is due.
func (r *refresher) refresh(ctx context.Context, h kafka.Handle, src tokenSource, log *zap.Logger, failed func(error)) time.Duration {
	bound, cancel := context.WithTimeout(ctx, tokenBound)
	defer cancel()
	token, err := src(bound)
	if err == nil {
		err = h.SetOAuthBearerToken(token)
	}
	if ctx.Err() != nil {
		return tokenRetry
	}
	if err != nil {
		log.Warn(noTokenReason+"; trying again", zap.Error(err), zap.Duration("in", tokenRetry))
		if failed != nil {
			failed(err)
		}
		if err := h.SetOAuthBearerTokenFailure(err.Error()); err != nil {
			log.Debug("tell the client that it gets no token", zap.Error(err))
		}
		return tokenRetry
	}
	life := time.Until(token.Expiration)
	log.Debug("access token set", zap.Time("expires", token.Expiration))
	return min(tokenMaximum, max(tokenMinimum, time.Duration(float64(life)*tokenPortion)))
}

// close ends it and waits.
func (r *refresher) close() {
	r.stop()
	<-r.done
}
