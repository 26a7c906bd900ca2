package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// named is an error as the Kafka client's are: it knows its setting.
type named struct {
	setting   string
	permanent bool
}

func (n *named) Error() string   { return n.setting + ": refused" }
func (n *named) Setting() string { return n.setting }
func (n *named) Cause() error    { return errors.New("refused") }
func (n *named) Permanent() bool { return n.permanent }

func TestStartNamesTheSettingThatTheErrorKnows(t *testing.T) {
	cfg, err := Load(testKeys(), "", []string{"startup.timeout=100ms"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := NewFrame("test", cfg, zap.NewNop())
	tries := 0
	for permanent, want := range map[bool]string{true: "sasl.password: refused", false: "sasl.password: refused (gave up after 100ms, startup.timeout)"} {
		tries = 0
		err := f.AtStart(t.Context(), "bootstrap.servers", func(context.Context) error {
			tries++
			return fmt.Errorf("reach kafka: %w", &named{"sasl.password", permanent})
		})
		if err == nil || err.Error() != want || permanent && tries != 1 {
			t.Errorf("%v after %d tries; want %s", err, tries, want)
		}
	}
}

func TestKafkaSecuritySettings(t *testing.T) {
	secrets := map[string]string{"sasl.password": "s3cret-1", "sasl.oauthbearer.client.secret": "s3cret-2", "ssl.key.password": "s3cret-3",
		"consumer.override.sasl.password": "s3cret-4", "ssl.key.pem": "s3cret-5", "sasl.jaas.config": "s3cret-6"}
	sets := []string{"sasl.mechanism=SCRAM-SHA-512", "sasl.username=archiver", "ssl.ca.location=/ca.pem", "ssl.endpoint.identification.algorithm=https"}
	for k, v := range secrets {
		sets = append(sets, k+"="+v)
	}
	cfg, err := Load(testKeys(), "", sets, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := cfg.print(&b); err != nil || strings.Contains(b.String(), "s3cret") || !strings.Contains(b.String(), "archiver") {
		t.Errorf("%v\n%s", err, b.String())
	}
	got := cfg.ClientOverrides("consumer")
	for k, want := range map[string]string{"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "archiver", "sasl.password": "s3cret-4", "ssl.ca.location": "/ca.pem"} {
		if got[k] != want {
			t.Errorf("%s: %q; want %q", k, got[k], want)
		}
	}
	for _, k := range []string{"sasl.oauthbearer.method", "ssl.certificate.location", "sasl.aws.region"} {
		if v, there := got[k]; there {
			t.Errorf("%s is not set, but passed on as %q", k, v)
		}
	}
	if _, err := Load(testKeys(), "", []string{"sasl.mechanism=SCRAM"}, nil); err == nil || !strings.Contains(err.Error(), "SCRAM-SHA-256") {
		t.Errorf("%v", err)
	}
}
