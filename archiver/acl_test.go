package archiver

import (
	"bytes"
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha512"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/secure/securetest"
)

const (
	adminUser     = "admin"
	adminPassword = "admin-secret"
)

// secured is a broker with TLS, users (SCRAM-SHA-512) and ACLs: the embedded one, or Kafka itself where TAPEDECK_TEST_KAFKA_SECURE is set.
type secured struct {
	*env
	ca    *securetest.CA
	super *kgo.Client
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{env: &env{t: t}, ca: securetest.NewCA(t, "kafka")}
	pair := s.ca.Issue("broker")
	if os.Getenv("TAPEDECK_TEST_KAFKA_SECURE") != "" {
		s.bootstrap = startSecuredKafka(t, s.ca, pair)
	} else {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(0), kfake.ClusterID("test-cluster"), kfake.GroupMinSessionTimeout(time.Second),
			kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair.TLS}}), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("SCRAM-SHA-512", adminUser, adminPassword))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		s.bootstrap = strings.Join(c.ListenAddrs(), ",")
	}
	var err error
	s.super, err = kgo.NewClient(kgo.SeedBrokers(s.bootstrap), kgo.DialTLSConfig(&tls.Config{RootCAs: s.ca.Pool}),
		kgo.SASL(scram.Auth{User: adminUser, Pass: adminPassword}.AsSha512Mechanism()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.super.Close)
	if s.admin, err = kafka.NewAdmin(kafka.Client{Bootstrap: s.bootstrap, Overrides: s.settingsOf(adminUser, adminPassword), Log: testLog(t)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.admin.Close)
	s.must(s.admin.Ping(s.ctx()))
	return s
}

// of is the same broker for a subtest.
func (s *secured) of(t *testing.T) *secured {
	sub, e := *s, *s.env
	e.t, sub.env = t, &e
	return &sub
}

func (s *secured) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *secured) settingsOf(user, password string) map[string]string {
	return map[string]string{"security.protocol": "sasl_ssl", "ssl.ca.location": s.ca.File, "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user, "sasl.password": password}
}

// startSecuredKafka runs Kafka by the project's script, with a listener of its own.
func startSecuredKafka(t *testing.T, ca *securetest.CA, pair securetest.Pair) string {
	t.Helper()
	dir := t.TempDir()
	keystore := filepath.Join(dir, "keystore.pem")
	var both []byte
	for _, f := range []string{pair.Key, pair.Certificate} {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, b...)
	}
	if err := os.WriteFile(keystore, both, 0o600); err != nil {
		t.Fatal(err)
	}
	// The controller's port is the next one.
	port := 0
	for port == 0 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := l.Addr().(*net.TCPAddr).Port
		if l2, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p+1)); err == nil {
			_ = l2.Close()
			port = p
		}
		_ = l.Close()
	}
	extra := filepath.Join(dir, "extra.properties")
	text := fmt.Sprintf(`listeners=SECURE://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%[2]d
advertised.listeners=SECURE://127.0.0.1:%[1]d
listener.security.protocol.map=SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=SECURE
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="%[3]s" password="%[4]s";
ssl.keystore.type=PEM
ssl.keystore.location=%[5]s
ssl.truststore.type=PEM
ssl.truststore.location=%[6]s
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:%[3]s;User:ANONYMOUS
`, port, port+1, adminUser, adminPassword, keystore, ca.File)
	if err := os.WriteFile(extra, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) error {
		cmd := exec.Command("../scripts/real/kafka.sh", args...)
		cmd.Env = append(os.Environ(), "KAFKA_NAME=kafka-secure", "KAFKA_PROPERTIES="+extra,
			fmt.Sprintf("KAFKA_FORMAT=--add-scram SCRAM-SHA-512=[name=%s,password=%s]", adminUser, adminPassword))
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("kafka.sh %v: %w\n%s", args, err, out.String())
		}
		return nil
	}
	t.Cleanup(func() {
		if err := run("stop"); err != nil {
			t.Error(err)
		}
	})
	if err := run("start", fmt.Sprint(port)); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// user makes a user with a password.
func (s *secured) user(name, password string) {
	s.t.Helper()
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	const iterations = 4096
	salted, err := pbkdf2.Key(sha512.New, password, salt, iterations, sha512.Size)
	s.must(err)
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	up := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	up.Name, up.Mechanism, up.Iterations, up.Salt, up.SaltedPassword = name, 2, iterations, salt, salted // 2: SCRAM-SHA-512
	req.Upsertions = append(req.Upsertions, up)
	resp, err := req.RequestWith(s.ctx(), s.super)
	s.must(err)
	for _, r := range resp.Results {
		s.must(kerr.ErrorForCode(r.ErrorCode))
	}
}

// grant is a line of deploy/kafka/acls.txt.
type grant struct{ resource, pattern, name, operation string }

// publishedACLs reads what is granted to a service, the holes filled.
func publishedACLs(t *testing.T, service string, fill map[string]string) []grant {
	t.Helper()
	b, err := os.ReadFile("../deploy/kafka/acls.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []grant
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != service {
			continue
		}
		if len(f) != 5 {
			t.Fatalf("line %q", line)
		}
		g := grant{f[1], f[2], f[3], f[4]}
		if strings.Contains(g.name, "<") {
			value, ok := fill[strings.Trim(g.name, "<>")]
			if !ok {
				t.Fatalf("nothing to fill %s with", g.name)
			}
			g.name = value
		}
		out = append(out, g)
	}
	return out
}

// allow grants, and waits until the broker says that it knows.
func (s *secured) allow(user string, grants []grant) {
	s.t.Helper()
	req := kmsg.NewPtrCreateACLsRequest()
	for _, g := range grants {
		c := kmsg.NewCreateACLsRequestCreation()
		var err error
		c.ResourceType, err = kmsg.ParseACLResourceType(g.resource)
		s.must(err)
		c.ResourcePatternType, err = kmsg.ParseACLResourcePatternType(g.pattern)
		s.must(err)
		c.Operation, err = kmsg.ParseACLOperation(g.operation)
		s.must(err)
		c.ResourceName, c.Principal, c.Host, c.PermissionType = g.name, "User:"+user, "*", kmsg.ACLPermissionTypeAllow
		req.Creations = append(req.Creations, c)
	}
	resp, err := req.RequestWith(s.ctx(), s.super)
	s.must(err)
	for _, r := range resp.Results {
		s.must(kerr.ErrorForCode(r.ErrorCode))
	}
}

// archive runs the archiver as a user, and returns when it has archived n records, or has said something.
func (s *secured) archive(user, password, topic, group string, n int64, said func(logs string) bool) (archived bool, logs string) {
	s.t.Helper()
	url, arc := openDir(s.t)
	secret := filepath.Join(s.t.TempDir(), "password")
	s.must(os.WriteFile(secret, []byte(password+"\n"), 0o600))
	sets := []string{"topics=" + topic, "group.id=" + group, "flush.size=10", "rotate.age.ms=500", "startup.timeout=1m", "sasl.password.file=" + secret}
	for k, v := range s.settingsOf(user, "") {
		if k != "sasl.password" {
			sets = append(sets, k+"="+v)
		}
	}
	p := s.process(build(s.t), url, sets...)
	s.awaitOr("archived, or a word about it", p.logs.String, func() bool {
		select {
		case <-p.done:
			return true
		default:
		}
		archived = s.next(arc, topic, 0) == n
		return archived || said(p.logs.String())
	})
	select {
	case <-p.done:
		if p.cmd.ProcessState.ExitCode() == 0 {
			s.t.Error("exit status 0")
		}
	default:
		p.end(s.t)
	}
	return archived, p.logs.String()
}

func suffix() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// TestLeastACLs grants the archiver exactly what deploy/kafka/acls.txt says, over TLS with SCRAM: it archives. With any one of the
// grants taken away it does not, and says which one is missing.
func TestLeastACLs(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	p, err := kafka.NewProducer(kafka.Client{Bootstrap: s.bootstrap, Overrides: s.settingsOf(adminUser, adminPassword), Log: testLog(t)}, "", 0)
	s.must(err)
	defer p.Close()
	const n = 20
	never := func(string) bool { return false }
	prepare := func() (user, topic, group string, grants []grant) {
		id := suffix()
		user, topic, group = "archiver-"+id, "trips-"+id, "group-"+id
		s.must(s.admin.CreateTopic(s.ctx(), topic, 1, 1, map[string]string{"retention.ms": "-1"}))
		s.send(p, topic, 0, numbered(0, n)...)
		s.user(user, "user-secret")
		return user, topic, group, publishedACLs(t, "archiver", map[string]string{"topic": topic, "group.id": group})
	}
	user, topic, group, grants := prepare()
	if len(grants) == 0 {
		t.Fatal("nothing is published for the archiver")
	}
	s.allow(user, grants)
	if ok, logs := s.archive(user, "user-secret", topic, group, n, never); !ok {
		t.Fatalf("with %v it did not archive:\n%s", grants, logs)
	}
	// Users, topics and groups of their own: side by side.
	for i := range grants {
		user, topic, group, grants := prepare()
		missing := grants[i]
		s.allow(user, slices.Delete(slices.Clone(grants), i, i+1))
		want := fmt.Sprintf("%s on %s %s", missing.operation, missing.resource, missing.name)
		t.Run(strings.ReplaceAll(want, " ", "_"), func(t *testing.T) {
			t.Parallel()
			ok, logs := s.of(t).archive(user, "user-secret", topic, group, n, func(logs string) bool { return strings.Contains(logs, want) })
			if ok || !strings.Contains(logs, want) {
				t.Errorf("without %q: archived %v; logs:\n%s", want, ok, logs)
			}
		})
	}
	user, topic, group, grants = prepare()
	s.allow(user, grants)
	if ok, logs := s.archive(user, "wrong-secret", topic, group, n, never); ok || !strings.Contains(logs, "archiver: sasl.password: ") || strings.Contains(logs, "wrong-secret") {
		t.Errorf("with a wrong password: archived %v; logs:\n%s", ok, logs)
	}
}

// TestPublishedCommands: the script prints a command for each line.
func TestPublishedCommands(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "../deploy/kafka/acls.sh", "archiver", "User:a", "topic=x", "topic=y", "group.id=g").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"x", "y"} {
		for _, g := range publishedACLs(t, "archiver", map[string]string{"topic": topic, "group.id": "g"}) {
			want := fmt.Sprintf("--allow-principal 'User:a' --operation %s --%s '%s' --resource-pattern-type %s\n", g.operation, g.resource, g.name, g.pattern)
			if g.resource == "cluster" {
				want = fmt.Sprintf("--operation %s --cluster\n", g.operation)
			}
			if !strings.Contains(string(out), want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
		}
	}
}
