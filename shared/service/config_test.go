package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func testKeys() []Key {
	return append(CommonKeys("127.0.0.1:0", KafkaKeys("consumer", "producer"), StoreKeys(), RegistryKeys()),
		Key{Name: "flush.size", Kind: Int, Default: "100", Doc: "records per segment", Example: "1000"},
		Key{Name: "segment.bytes", Kind: Bytes, Default: "64MiB"},
		Key{Name: "topics", Kind: List, Example: "a,b"},
		Key{Name: "verbose", Kind: Bool},
		Key{Name: "wait", Kind: Duration, Default: "5s"},
		Key{Name: "gap.policy", Default: "stop", OneOf: []string{"stop", "record"}},
		Key{Name: "api.key", Secret: true},
		Key{Name: "targets.*"},
		Key{Name: "topics.regex"},
	)
}

func write(t *testing.T, content string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func mustLoad(t *testing.T, yaml string, sets, env []string) *Config {
	t.Helper()
	c, err := Load(testKeys(), write(t, yaml), sets, env)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNestedAndDottedKeysMeanTheSame(t *testing.T) {
	for _, y := range []string{
		"flush.size: 7\ntopics: [a, 'b,c']\nsegment.bytes: 2MiB\nverbose: true\nwait: 3s\ntargets.p.url: http://x\n",
		"flush:\n  size: 7\ntopics:\n- a\n- 'b,c'\nsegment:\n  bytes: 2MiB\nverbose: yes\nwait: 3s\ntargets:\n  p: {url: http://x}\n",
		"# comment\n---\nflush: {size: 7}\ntopics: [a, 'b,c']\nsegment.bytes: 2097152\nverbose: true\nwait: 3000ms\ntargets:\n  p.url: http://x\n",
	} {
		c := mustLoad(t, y, nil, nil)
		if c.Int("flush.size") != 7 || c.Int("segment.bytes") != 2<<20 || !c.Bool("verbose") || c.Duration("wait") != 3*time.Second {
			t.Errorf("%q: wrong values %v", y, c.Masked())
		}
		if d := cmp.Diff([]string{"a", "b,c"}, c.List("topics")); d != "" {
			t.Errorf("%q: topics: %s", y, d)
		}
		if d := cmp.Diff(map[string]string{"p.url": "http://x"}, c.WithPrefix("targets.")); d != "" {
			t.Errorf("%q: targets: %s", y, d)
		}
	}
}

func TestPrecedence(t *testing.T) {
	y := "flush.size: 1\nwait: 1s\nsegment.bytes: 1\n"
	env := []string{"TAPEDECK_FLUSH_SIZE=2", "TAPEDECK_WAIT=2s", "TAPEDECK_VERBOSE=", "PATH=/bin", "TAPEDECK_TEST_ANYTHING=1"}
	c := mustLoad(t, y, []string{"flush.size=3"}, env)
	if got := []any{c.Int("flush.size"), c.Duration("wait"), c.Int("segment.bytes"), c.String("gap.policy"), c.Bool("verbose")}; !cmp.Equal(got,
		[]any{int64(3), 2 * time.Second, int64(1), "stop", false}) {
		t.Errorf("got %v", got)
	}
}

func TestEnvironmentNames(t *testing.T) {
	if got := EnvName("flush.size"); got != "TAPEDECK_FLUSH_SIZE" {
		t.Error(got)
	}
	c := mustLoad(t, "", nil, []string{"TAPEDECK_CONSUMER_OVERRIDE_FETCH_MIN_BYTES=9", "TAPEDECK_SECURITY_PROTOCOL=ssl",
		"TAPEDECK_SSL_CA_LOCATION=/ca", "TAPEDECK_TOPICS=x, y,"})
	if d := cmp.Diff(map[string]string{"fetch.min.bytes": "9", "security.protocol": "ssl", "ssl.ca.location": "/ca"},
		c.ClientOverrides("consumer")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{"security.protocol": "ssl", "ssl.ca.location": "/ca"}, c.ClientOverrides("")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"x", "y"}, c.List("topics")); d != "" {
		t.Error(d)
	}
}

func TestLoadErrors(t *testing.T) {
	tests := []struct {
		name, yaml string
		sets, env  []string
		want       string
	}{
		{name: "unknown in file", yaml: "rest.listen: ':1'\n\nflsh.size: 3\n",
			want: `unknown setting "flsh.size" (config.yaml:3); did you mean "flush.size"?`},
		{name: "unknown nested", yaml: "flush:\n  sise: 3\n", want: `unknown setting "flush.sise" (config.yaml:2); did you mean "flush.size"?`},
		{name: "unknown far", yaml: "colour: red\n", want: `unknown setting "colour" (config.yaml:1); --help lists all`},
		{name: "unknown set", sets: []string{"flushsize=1"}, want: `unknown setting "flushsize" (--set); did you mean "flush.size"?`},
		{name: "unknown environment", env: []string{"TAPEDECK_FLUSH_SIZ=1"},
			want: `unknown environment variable "TAPEDECK_FLUSH_SIZ" (environment); did you mean "TAPEDECK_FLUSH_SIZE"?`},
		{name: "family without member", env: []string{"TAPEDECK_TARGETS_=1"}, want: `unknown environment variable "TAPEDECK_TARGETS_"`},
		{name: "not an int", yaml: "flush.size: many\n", want: `setting "flush.size" (config.yaml:1) is "many": want a whole number`},
		{name: "not a duration", env: []string{"TAPEDECK_WAIT=5"}, want: `setting "wait" (environment TAPEDECK_WAIT) is "5": want a duration`},
		{name: "not bytes", sets: []string{"segment.bytes=-1"}, want: `setting "segment.bytes" (--set) is "-1": want a number of bytes`},
		{name: "bytes overflow", sets: []string{"segment.bytes=9999999999TiB"}, want: "too large"},
		{name: "not one of", sets: []string{"gap.policy=ignore"}, want: "want one of stop, record"},
		{name: "no value", yaml: "flush.size:\n", want: "config.yaml:1:1: flush.size has no value"},
		{name: "twice", yaml: "flush.size: 1\nflush:\n  size: 2\n", want: "config.yaml:3:3: flush.size is given twice (also on line 1)"},
		{name: "syntax", yaml: "topics: [a\nwait: 5s\n", want: "config.yaml:2:1: ',' or ']' must be specified"},
		{name: "not a mapping", yaml: "- a\n", want: "config.yaml:1:1: want settings as `name: value`"},
		{name: "nested list", yaml: "topics: [[a]]\n", want: "config.yaml:1:10: topics: want a plain value"},
		{name: "set without value", sets: []string{"flush.size"}, want: "--set flush.size: want key=value"},
		{name: "secret file missing", sets: []string{"api.key.file=/nowhere/x"}, want: `setting "api.key.file" (--set)`},
		{name: "secret twice", sets: []string{"api.key.file=/dev/null", "api.key=x"}, want: `is also given as "api.key.file"`},
		{name: "file of what is no secret", sets: []string{"flush.size.file=/dev/null"}, want: `unknown setting "flush.size.file"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := write(t, tt.yaml)
			_, err := Load(testKeys(), p, tt.sets, tt.env)
			if err == nil {
				t.Fatal("no error")
			}
			if got := strings.ReplaceAll(err.Error(), p, "config.yaml"); !strings.Contains(got, tt.want) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	if _, err := Load(testKeys(), "/nowhere/c.yaml", nil, nil); err == nil || !strings.Contains(err.Error(), "/nowhere/c.yaml") {
		t.Errorf("missing file: %v", err)
	}
}

func TestRequired(t *testing.T) {
	keys := append(testKeys(), Key{Name: "store", Required: true})
	_, err := Load(keys, "", nil, nil)
	if err == nil || !strings.Contains(err.Error(), `setting "store" is required`) || !strings.Contains(err.Error(), "TAPEDECK_STORE") {
		t.Errorf("got %v", err)
	}
	if c, err := Load(keys, "", []string{"store=mem://"}, nil); err != nil || c.String("store") != "mem://" {
		t.Errorf("got %v", err)
	}
}

func TestSecretsAreReadFromFilesAndMasked(t *testing.T) {
	p := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(p, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, "api.key.file: "+p+"\nstore: s3://b/p?region=eu&secret-key=s3cret&x=1\nschema.registry.url: http://me:s3cret@host/a\n",
		[]string{"consumer.override.sasl.password=s3cret", "sasl.password.file=" + p}, []string{"TAPEDECK_PRODUCER_OVERRIDE_SSL_KEY_PASSWORD=s3cret"})
	if got := c.String("api.key"); got != "s3cret" {
		t.Errorf("api.key = %q", got)
	}
	if got := c.ClientOverrides("")["sasl.password"]; got != "s3cret" {
		t.Errorf("sasl.password = %q", got)
	}
	m := c.Masked()
	for k, v := range m {
		if strings.Contains(v, "s3cret") {
			t.Errorf("%s shows the secret: %s", k, v)
		}
	}
	for k, want := range map[string]string{
		"api.key": "****", "consumer.override.sasl.password": "****", "store": "s3://b/p?region=eu&secret-key=****&x=1",
		"schema.registry.url": "http://me:****@host/a", "flush.size": "100", "schema.registry.basic.auth.user.info": "",
	} {
		if m[k] != want {
			t.Errorf("%s = %q, want %q", k, m[k], want)
		}
	}
	var b strings.Builder
	if err := c.print(&b); err != nil || strings.Contains(b.String(), "s3cret") || !strings.Contains(b.String(), "# environment TAPEDECK_PRODUCER") {
		t.Errorf("%v\n%s", err, b.String())
	}
	// What is printed can be loaded again.
	if _, err := Load(testKeys(), write(t, b.String()), nil, nil); err != nil {
		t.Errorf("printed configuration: %v\n%s", err, b.String())
	}
	_, err := Load([]Key{{Name: "k", Kind: Int, Secret: true}}, "", []string{"k=s3cret"}, nil)
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error shows the secret: %v", err)
	}
}

// A higher source's way of giving a secret replaces a lower one's other way.
func TestSecretFilePrecedence(t *testing.T) {
	c := mustLoad(t, "api.key.file: /dev/null\n", nil, []string{"TAPEDECK_API_KEY=x"})
	if got := c.String("api.key"); got != "x" {
		t.Errorf("got %q", got)
	}
}

func TestAnUndeclaredKeyPanics(t *testing.T) {
	c := mustLoad(t, "", nil, nil)
	for name, f := range map[string]func(){
		"undeclared": func() { c.String("nope") },
		"wrong kind": func() { c.Int("topics") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestNearest(t *testing.T) {
	known := []string{"flush.size", "segment.bytes", "topics"}
	for in, want := range map[string]string{"flush.szie": "flush.size", "topcs": "topics", "segment_bytes": "segment.bytes", "zzz": "", "": ""} {
		if got := Nearest(in, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzParseYAML(f *testing.F) {
	for _, s := range []string{"a: 1", "a:\n  b: [1, 2]\n", "a: &x 1\nb: *x", "<<: {a: 1}", "? a\n: b", "a: |\n  x\n", "---\n---\n", "a: !!int 3"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ss, err := parseYAML("f", data, nil)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("error of several lines: %q", err)
		}
		for _, s := range ss {
			if s.name == "" || !strings.HasPrefix(s.origin, "f:") {
				t.Errorf("bad setting %+v", s)
			}
		}
	})
}

func TestURLsInParametersAreMasked(t *testing.T) {
	for in, want := range map[string]string{
		"s3://b/p?endpoint=http://me:s3cret@h:9000&region=x":       "s3://b/p?endpoint=http://me:****@h:9000&region=x",
		"s3://b/p?proxy=http%3A%2F%2Fme%3As3cret%40h%3A1&region=x": "s3://b/p?proxy=http%3A%2F%2Fme%3A****%40h%3A1&region=x",
		"s3://b/p?proxy=http://s3cret@h":                           "s3://b/p?proxy=http://****@h",
		"s3://b/p?proxy=http:%2f%2fme:s3cret@h":                    "s3://b/p?proxy=http%3A%2F%2Fme%3A****%40h",
		"s3://b/p?endpoint=http://h:9000&path-style=true":          "s3://b/p?endpoint=http://h:9000&path-style=true",
		"s3://b/p?endpoint=http%3A%2F%2Fh%3A9000":                  "s3://b/p?endpoint=http%3A%2F%2Fh%3A9000",
	} {
		if got := maskURL(in); got != want {
			t.Errorf("%s is shown as %s, want %s", in, got, want)
		}
	}
}

// What a service would ignore is refused where it was written for it; an environment may be shared by the services.
func TestASettingOfAnotherServiceIsRefused(t *testing.T) {
	keys := CommonKeys("127.0.0.1:0", StoreKeys())
	for _, name := range []string{"bootstrap.servers", "consumer.override.fetch.min.bytes", "sasl.password", "schema.registry.url"} {
		_, err := load("the replayer", keys, "", []string{name + "=x"}, nil)
		if want := `setting "` + name + `" (--set) is not used by the replayer`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if _, err := Load(keys, "", nil, []string{EnvName(name) + "=x"}); err != nil {
			t.Errorf("environment: %v", err)
		}
	}
	if _, err := Load(keys, "", nil, []string{"TAPEDECK_BOTSTRAP_SERVERS=x"}); err == nil {
		t.Error("a variable that nobody knows was taken")
	}
	if _, err := Load(KafkaKeys(), "", []string{"security.protocol=sasl"}, nil); err == nil || !strings.Contains(err.Error(), "security.protocol") {
		t.Errorf("security.protocol: %v", err)
	}
}
