package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/twmb/franz-go/pkg/kfake"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/secure/securetest"
)

// securedFake is an embedded broker with TLS and users, and the settings that reach it.
func securedFake(t *testing.T, clientAuth tls.ClientAuthType, opts ...kfake.Opt) (bootstrap string, ca *securetest.CA) {
	t.Helper()
	ca = securetest.NewCA(t, "kafka")
	conf := &tls.Config{Certificates: []tls.Certificate{ca.Issue("broker").TLS}, ClientCAs: ca.Pool, ClientAuth: clientAuth}
	c, err := kfake.NewCluster(append(opts, kfake.Ports(0), kfake.NumBrokers(1), kfake.TLS(conf), kfake.GroupMinSessionTimeout(time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return strings.Join(c.ListenAddrs(), ","), ca
}

// roundTrip uses all three kinds of client once.
func roundTrip(t *testing.T, c Client) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a, err := NewAdmin(c)
	if err != nil {
		return err
	}
	defer a.Close()
	if err := a.Ping(ctx); err != nil {
		return err
	}
	topic := unique("secure")
	if err := a.CreateTopic(ctx, topic, 1, 0, nil); err != nil {
		return err
	}
	p, err := NewProducer(c, "", 0)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.Send(ctx, &record.Record{Topic: topic, Value: []byte("v"), Timestamp: 1}); err != nil {
		return err
	}
	if err := p.Flush(ctx); err != nil {
		return err
	}
	cons, err := NewConsumer(ConsumerConfig{Client: c})
	if err != nil {
		return err
	}
	defer cons.Close()
	if err := cons.Start(Position{TP: TP{Topic: topic}, LeaderEpoch: record.NoEpoch}); err != nil {
		return err
	}
	for {
		evs, err := cons.Poll(ctx, time.Second)
		if err != nil {
			return err
		}
		for _, ev := range evs {
			if b, ok := ev.(Batch); ok && string(b.Records[0].Value) == "v" {
				return nil
			}
		}
	}
}

// TestSecuredConnections: what is right works with every kind of client; what is wrong is said soon, with its setting.
func TestSecuredConnections(t *testing.T) {
	scram, ca := securedFake(t, tls.NoClientCert, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "archiver", "right"), kfake.Superuser("PLAIN", "archiver", "plain"))
	mutual, mutualCA := securedFake(t, tls.RequireAndVerifyClientCert)
	other := securetest.NewCA(t, "other")
	mine, foreign := mutualCA.Issue("archiver"), other.Issue("archiver")
	good := map[string]string{"security.protocol": "sasl_ssl", "ssl.ca.location": ca.File, "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "archiver", "sasl.password": "right"}
	with := func(m map[string]string, kv ...string) map[string]string {
		m = maps.Clone(m)
		for i := 0; i < len(kv); i += 2 {
			if m[kv[i]] = kv[i+1]; kv[i+1] == "" {
				delete(m, kv[i])
			}
		}
		return m
	}
	mtls := map[string]string{"security.protocol": "ssl", "ssl.ca.location": mutualCA.File, "ssl.certificate.location": mine.Certificate, "ssl.key.location": mine.Key}
	for _, c := range []struct {
		name, bootstrap string
		settings        map[string]string
		setting         string // "": it works
	}{
		{"SCRAM over TLS", scram, good, ""},
		{"PLAIN over TLS", scram, with(good, "sasl.mechanism", "PLAIN", "sasl.password", "plain"), ""},
		{"mutual TLS", mutual, mtls, ""},
		{"wrong password", scram, with(good, "sasl.password", "wrong-secret"), "sasl.password"},
		{"unknown user", scram, with(good, "sasl.username", "nobody", "sasl.password", "wrong-secret"), "sasl.password"},
		{"untrusted broker", scram, with(good, "ssl.ca.location", other.File), "ssl.ca.location"},
		{"mechanism not offered", scram, with(good, "sasl.mechanism", "OAUTHBEARER", "sasl.username", "", "sasl.password", "", "enable.sasl.oauthbearer.unsecure.jwt", "true", "sasl.oauthbearer.config", "principal=a"), "sasl.mechanism"},
		{"no client certificate", mutual, with(mtls, "ssl.certificate.location", "", "ssl.key.location", ""), "ssl.certificate.location"},
		{"foreign client certificate", mutual, with(mtls, "ssl.certificate.location", foreign.Certificate, "ssl.key.location", foreign.Key), "ssl.certificate.location"},
		{"SASL without protocol", scram, with(good, "security.protocol", "ssl"), "security.protocol"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := roundTrip(t, Client{Bootstrap: c.bootstrap, ClientID: "test", Overrides: c.settings, Log: testLog(t)})
			if c.setting == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			se, ok := errors.AsType[*SettingError](err)
			if !ok || se.Name != c.setting || !se.Final || strings.Contains(err.Error(), "wrong-secret") {
				t.Errorf("%v; want %s, for good, and no password", err, c.setting)
			}
			if strings.HasPrefix(c.setting, "sasl.password") && !errors.Is(err, ErrUnauthorized) {
				t.Errorf("%v is not ErrUnauthorized", err)
			}
		})
	}
	// A listener of another kind is waited for, as one that is not there; at the end its answer is told.
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	a, err := NewAdmin(Client{Bootstrap: scram, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Ping(ctx); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "security.protocol") {
		t.Errorf("plaintext to a TLS listener: %v", err)
	}
}

// What cannot work is refused before anything is connected to.
func TestRefusedAuthSettings(t *testing.T) {
	for want, m := range map[string]kafka.ConfigMap{
		"sasl.aws.region: AWS_MSK_IAM needs":          {"security.protocol": "sasl_ssl", "sasl.mechanism": "AWS_MSK_IAM"},
		"sasl.aws.region: has a meaning":              {"sasl.aws.region": "eu-central-1"},
		"sasl.oauthbearer.token.file: has a meaning":  {"sasl.oauthbearer.token.file": "x"},
		"sasl.oauthbearer.token.file: tokens come":    {"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.method": "OIDC", "sasl.oauthbearer.token.file": "x"},
		"sasl.mechanism: OAUTHBEARER needs tokens":    {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"},
		"security.protocol: sasl.mechanism is PLAIN,": {"sasl.mechanism": "PLAIN"},
	} {
		if _, err := auth(m); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: %v; want %s…", m, err, want)
		}
	}
	m := kafka.ConfigMap{"security.protocol": "sasl_ssl", "sasl.mechanism": "AWS_MSK_IAM", "sasl.aws.region": "eu-central-1"}
	if src, err := auth(m); err != nil || src == nil || m["sasl.mechanism"] != "OAUTHBEARER" || len(m) != 2 {
		t.Errorf("%v %v", m, err)
	}
}
