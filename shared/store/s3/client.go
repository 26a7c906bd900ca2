package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"
)

const (
	// readAttempts bounds the requests of one read whose answer fails (the SDK's standard retries), and again the answers
	// whose body breaks off.
	readAttempts = 4
	maxBackoff   = 5 * time.Second
	dialTimeout  = 10 * time.Second
	// slowestBytes is the pace in bytes a second that a transfer must keep, on top of the timeout.
	slowestBytes = 256 << 10
)

// newClient builds the SDK's client. It reads the environment and files as the SDK's chain does, and makes no request.
func newClient(ctx context.Context, o Options) (*awss3.Client, *http.Transport, *observed, error) {
	setTransport, err := transportOptions(o)
	if err != nil {
		return nil, nil, nil, err
	}
	// The SDK's kind of client takes AWS_CA_BUNDLE and serves the providers of credentials.
	base := awshttp.NewBuildableClient().WithTransportOptions(setTransport)

	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(base),
		config.WithLogger(logging.Nop{}),
		config.WithAppID("tapedeck"),
	}
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	if o.AccessKey != "" {
		load = append(load, config.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(o.AccessKey, o.SecretKey, o.SessionToken)))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("load the AWS configuration for %s: %w", o, err)
	}
	if c, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok {
		base = c
	}
	transport := base.GetTransport()
	if err := trust(transport, o); err != nil {
		return nil, nil, nil, err
	}
	// A client of plain net/http stops the SDK from putting a timeout of its own on idle reads: it counts from the start
	// of a request, so that a long upload would be cut off in the middle. And its connections can be closed.
	seen := &observed{next: transport}
	cfg.HTTPClient = &http.Client{Transport: seen, CheckRedirect: noRedirect}
	if cfg.Region == "" {
		if o.Endpoint == "" {
			return nil, nil, nil, fmt.Errorf("no region for %s: give region=… in the address, or AWS_REGION", o)
		}
		cfg.Region = "us-east-1"
	}
	if o.RoleARN != "" {
		provider := stscreds.NewAssumeRoleProvider(sts.NewFromConfig(cfg), o.RoleARN, func(r *stscreds.AssumeRoleOptions) {
			r.RoleSessionName = "tapedeck"
			if o.ExternalID != "" {
				r.ExternalID = aws.String(o.ExternalID)
			}
		})
		cfg.Credentials = aws.NewCredentialsCache(provider, func(c *aws.CredentialsCacheOptions) {
			// Renewed ahead of time, so that no upload meets its expiry.
			c.ExpiryWindow = 2 * time.Minute
		})
	}

	client := awss3.NewFromConfig(cfg, func(s *awss3.Options) {
		if o.Endpoint != "" {
			s.BaseEndpoint = aws.String(o.Endpoint)
		}
		s.UsePathStyle = o.PathStyle || hostNeedsPathStyle(o.Endpoint)
		s.DisableLogOutputChecksumValidationSkipped = true
		s.RetryMaxAttempts = 0
		s.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
			r.MaxAttempts = readAttempts
			r.MaxBackoff = o.maxBackoff
			r.Backoff = politeBackoff{retry.NewExponentialJitterBackoff(o.maxBackoff)}
			r.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
				if readAnswer(err).after > o.maxBackoff {
					return aws.FalseTernary // the caller waits, with partitions paused
				}
				if errors.Is(err, errBroken) || errors.Is(err, errBody) {
					return aws.TrueTernary
				}
				return aws.UnknownTernary
			})}, r.Retryables...)
		})
		switch o.Checksum {
		case ChecksumWhenRequired, ChecksumNone:
			s.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
			s.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		default:
			s.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenSupported
			// Objects check themselves, and say at which byte; the SDK's check would hide that behind a broken answer.
			s.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		}
		if o.Checksum == ChecksumNone {
			s.ContinueHeaderThresholdBytes = -1
			s.APIOptions = append(s.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
		}
	})
	return client, transport, seen, nil
}

// politeBackoff waits as the store asks (Retry-After), and the SDK's jitter on top.
type politeBackoff struct{ jitter retry.BackoffDelayer }

func (b politeBackoff) BackoffDelay(attempt int, err error) (time.Duration, error) {
	d, jitterErr := b.jitter.BackoffDelay(attempt, err)
	return d + readAnswer(err).after, jitterErr
}

// transportOptions gives timeouts and proxy to a transport.
func transportOptions(o Options) (func(*http.Transport), error) {
	var proxy *url.URL
	if o.Proxy != "" {
		var err error
		if proxy, err = url.Parse(o.Proxy); err != nil {
			return nil, fmt.Errorf("proxy of %s is not a URL", o)
		}
	}
	return func(tr *http.Transport) {
		tr.DialContext = (&net.Dialer{Timeout: min(dialTimeout, o.Timeout), KeepAlive: 30 * time.Second}).DialContext
		tr.TLSHandshakeTimeout = min(dialTimeout, o.Timeout)
		tr.ResponseHeaderTimeout = o.Timeout
		if proxy != nil {
			tr.Proxy = func(r *http.Request) (*url.URL, error) {
				// Credentials of the machine's role come from a link-local address, which no proxy reaches.
				if ip := net.ParseIP(r.URL.Hostname()); ip != nil && ip.IsLinkLocalUnicast() {
					return nil, nil
				}
				return proxy, nil
			}
		}
	}, nil
}

// trust adds the authorities of the CA file to those that the transport trusts.
func trust(tr *http.Transport, o Options) error {
	if o.CAFile == "" {
		return nil
	}
	pem, err := os.ReadFile(o.CAFile)
	if err != nil {
		return fmt.Errorf("read ca-file of %s: %w", o, err)
	}
	if tr.TLSClientConfig == nil {
		tr.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if tr.TLSClientConfig.RootCAs == nil {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		tr.TLSClientConfig.RootCAs = pool
	}
	if !tr.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("read ca-file of %s: no certificate in %s", o, o.CAFile)
	}
	return nil
}

// noRedirect follows no redirect: S3's point to another region or a bucket elsewhere, and a followed one would carry the
// signature to a host that nobody named. The answer becomes an error that says what to set.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// hostNeedsPathStyle says whether bucket.host cannot be a host name.
func hostNeedsPathStyle(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	host := u.Hostname()
	return host == "localhost" || net.ParseIP(host) != nil
}
