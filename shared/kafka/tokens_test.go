package kafka

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tapedeck.dev/tapedeck/shared/record"
)

// jwt is an unsigned token; n makes it differ.
func jwt(n int, expires time.Time) string {
	enc := func(v any) string {
		b, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	return enc(map[string]string{"alg": "none"}) + "." + enc(map[string]any{"sub": "archiver", "n": n, "iat": time.Now().Unix(), "exp": expires.Unix()}) + "."
}

// bouncer makes the embedded broker ask for SASL OAUTHBEARER, which it does not know itself, and gives a session no longer life than
// its token. It keeps what it was shown.
type bouncer struct {
	mu      sync.Mutex
	shown   map[string]int // token → times
	expired int            // tokens shown after their end
}

func newBouncer(t *testing.T, c *kfake.Cluster) *bouncer {
	t.Helper()
	b := &bouncer{shown: map[string]int{}}
	c.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		resp.SupportedMechanisms = []string{"OAUTHBEARER"}
		if req.(*kmsg.SASLHandshakeRequest).Mechanism != "OAUTHBEARER" {
			resp.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		}
		return resp, nil, true
	})
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		text := string(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes)
		_, token, _ := strings.Cut(text, "auth=Bearer ")
		token, _, _ = strings.Cut(token, "\x01")
		t, err := parseJWT(token)
		left := time.Until(t.Expiration)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.shown[token]++
		if err != nil || left <= 0 {
			b.expired++
			resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
			return resp, nil, true
		}
		resp.SessionLifetimeMillis = left.Milliseconds()
		return resp, nil, true
	})
	return b
}

func (b *bouncer) counts() (tokens, expired int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.shown), b.expired
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(4 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited in vain: %s", what)
}

// issuer renews a token in a file, as an agent does.
type issuer struct {
	t    *testing.T
	file string
	life time.Duration
	n    int
}

func (i *issuer) renew() {
	i.t.Helper()
	i.n++
	if err := os.WriteFile(i.file+".new", []byte(jwt(i.n, time.Now().Add(i.life))+"\n"), 0o600); err != nil {
		i.t.Fatal(err)
	}
	if err := os.Rename(i.file+".new", i.file); err != nil {
		i.t.Fatal(err)
	}
}

// TestTokensAreRenewedWithoutTraffic is the access token that expires while a topic is quiet or paused: a consumer that is paused, and
// for a while not even polled, an admin client and a producer that do nothing are given new tokens all the same, show them to the broker
// before the old ones end, and go on at once.
func TestTokensAreRenewedWithoutTraffic(t *testing.T) {
	if testing.Short() {
		t.Skip("tokens live for seconds")
	}
	for _, kind := range []string{"file", "oidc"} {
		t.Run(kind, func(t *testing.T) {
			e := onFake(t, kfake.NumBrokers(1))
			topic := e.topic(1)
			door := newBouncer(t, e.fake)
			settings := map[string]string{"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}
			renew := func() {}
			t.Parallel()
			life := 4 * time.Second
			if kind == "file" {
				i := &issuer{t: t, file: filepath.Join(t.TempDir(), "token"), life: life}
				i.renew()
				renew = i.renew
				settings["sasl.oauthbearer.token.file"] = i.file
			} else {
				life = 6 * time.Second // librdkafka renews at four fifths, and exp has whole seconds
				var mu sync.Mutex
				n := 0
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					n++
					id, secret, _ := r.BasicAuth()
					if id != "archiver" || secret != "s3cret" || r.FormValue("grant_type") != "client_credentials" {
						w.WriteHeader(http.StatusUnauthorized)
						return
					}
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, jwt(n, time.Now().Add(life)), int(life.Seconds()))
				}))
				t.Cleanup(srv.Close)
				maps.Copy(settings, map[string]string{"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": srv.URL + "/token",
					"sasl.oauthbearer.client.id": "archiver", "sasl.oauthbearer.client.secret": "s3cret"})
			}
			client := Client{Bootstrap: e.bootstrap, ClientID: "secured", Overrides: settings, Log: testLog(t)}
			admin, err := NewAdmin(client)
			e.must(err)
			defer admin.Close()
			e.must(admin.Ping(e.ctx()))
			producer, err := NewProducer(client, "", 0)
			e.must(err)
			defer producer.Close()
			cons, err := NewConsumer(ConsumerConfig{Client: client})
			e.must(err)
			defer cons.Close()
			tp := TP{Topic: topic}
			e.must(cons.Start(Position{TP: tp, LeaderEpoch: record.NoEpoch}))
			got := 0
			poll := func() {
				t.Helper()
				evs, err := cons.Poll(e.ctx(), 100*time.Millisecond)
				e.must(err)
				for _, ev := range evs {
					switch v := ev.(type) {
					case Batch:
						got += len(v.Records)
					case GroupError:
						t.Errorf("%v", v.Err)
					case PartitionError:
						t.Errorf("%v", v.Err)
					}
				}
			}
			send := func() {
				t.Helper()
				e.must(producer.Send(e.ctx(), &record.Record{Topic: topic, Value: []byte("v"), Timestamp: 1}))
				e.must(producer.Flush(e.ctx()))
			}
			send()
			until(t, "the first record", func() bool { poll(); return got == 1 })
			e.must(cons.Pause(tp))

			began, lastRenewal := time.Now(), time.Now()
			until(t, "five tokens were shown", func() bool {
				if time.Since(lastRenewal) > life/4 {
					renew()
					lastRenewal = time.Now()
				}
				if time.Since(began) > 2*life { // at first nobody polls
					poll()
				}
				tokens, _ := door.counts()
				return tokens >= 5 && time.Since(began) > 3*life
			})
			renew()
			e.must(cons.Resume(tp))
			_, err = admin.ClusterID(e.ctx())
			e.must(err)
			send()
			until(t, "the record after the pause", func() bool { poll(); return got == 2 })
			if _, expired := door.counts(); expired > 0 {
				t.Errorf("%d tokens were shown after their end", expired)
			}
		})
	}
}

// A token that is missing at the start is waited for, and its absence is said with the setting.
func TestTokenThatComesLate(t *testing.T) {
	e := onFake(t, kfake.NumBrokers(1))
	newBouncer(t, e.fake)
	i := &issuer{t: t, file: filepath.Join(t.TempDir(), "token"), life: time.Hour}
	client := Client{Bootstrap: e.bootstrap, Overrides: map[string]string{"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.file": i.file}}
	a, err := NewAdmin(client)
	e.must(err)
	defer a.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if err := a.Ping(ctx); err == nil || !strings.Contains(err.Error(), "sasl.oauthbearer.token.file: open ") {
		t.Errorf("without a token: %v", err)
	}
	i.renew()
	e.must(a.Ping(e.ctx()))
}

func TestFileTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	src := fileTokens(path)
	check := func(content, want string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := src(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || len(content) > 20 && strings.Contains(err.Error(), content[:20]) {
			t.Errorf("%v; want …%s… and nothing of the token", err, want)
		}
	}
	check("", "no JWT")
	check("aaaa.!!!!.bbbb", "not base64")
	check("aaaa.aaaa.bbbb", "not JSON")
	check("a."+base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"x"}`))+".c", "no usable exp")
	check(jwt(1, time.Now().Add(-time.Minute)), "expired at")
	end := time.Now().Add(time.Hour)
	if err := os.WriteFile(path, []byte(jwt(1, end)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := src(t.Context()); err != nil || got.Principal != "archiver" || got.Expiration.Unix() != end.Unix() {
		t.Errorf("%+v %v", got, err)
	}
}

// TestMSKToken: the token is AWS's signed address of kafka-cluster:Connect, made of the environment's credentials, without a network.
func TestMSKToken(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_SESSION_TOKEN", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	got, err := mskTokens("eu-central-1")(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(got.TokenValue)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if u.Host != "kafka.eu-central-1.amazonaws.com" || q.Get("Action") != "kafka-cluster:Connect" || !strings.Contains(q.Get("X-Amz-Credential"), "AKIDEXAMPLE/") ||
		!strings.Contains(q.Get("X-Amz-Credential"), "/eu-central-1/kafka-cluster/") || q.Get("X-Amz-Signature") == "" {
		t.Errorf("%s", raw)
	}
	if left := time.Until(got.Expiration); left < 10*time.Minute || left > 20*time.Minute {
		t.Errorf("expires in %s", left)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_CONFIG_FILE", "/does/not/exist")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/does/not/exist")
	if _, err := mskTokens("eu-central-1")(t.Context()); err == nil || !strings.Contains(err.Error(), "sign an access token for eu-central-1") {
		t.Errorf("without credentials: %v", err)
	}
}
