package service

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind is the type of a setting's value.
type Kind int

// Kinds. A Duration is written with a unit (10s) where the key's name has none; keys ending in ".ms" are Int milliseconds. Bytes
// accept 64MiB.
const (
	String Kind = iota
	Int
	Bytes
	Bool
	Duration
	List    // comma separated, or a YAML list
	Entries // a YAML list of entries, each of the key's Members; as YAML or JSON text where one value is written in a line
)

func (k Kind) String() string {
	names := [...]string{"string", "int", "bytes", "bool", "duration", "list", "entries"}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return names[k]
}

// Key describes one setting. A Name that ends in ".*" accepts any key with that prefix, as strings.
type Key struct {
	Name     string // dotted, Connect's name where the same thing exists
	Kind     Kind
	Default  string
	Doc      string // one line: meaning, unit, bounds
	Example  string // shown by --help in a sample file; "" leaves the key out of it
	Required bool
	Secret   bool               // masked wherever printed; also accepted as <name>.file
	OneOf    []string           // the only values allowed; empty: any
	Members  []Key              // of Entries: what one entry may set
	Check    func(string) error // a further check of the value as written, e.g. a bound; nil: none
}

// isPrefix reports whether k accepts a family of keys, and the family's prefix with its dot.
func (k Key) isPrefix() (string, bool) {
	p, ok := strings.CutSuffix(k.Name, "*")
	return p, ok
}

// CommonKeys are the keys of every service: listen address (rest.listen, TAPEDECK_REST_LISTEN) and what secures it (rest.ssl.*, rest.auth.*), log.level, log.format, start-up bound
// (startup.timeout), run.unprivileged. listen is the default listen address. A service adds the groups of what it uses (KafkaKeys, StoreKeys, RegistryKeys), so
// that it refuses what it would ignore. One that needs more of a key (Required, another default) appends a Key of the same name:
// the later wins.
func CommonKeys(listen string, groups ...[]Key) []Key {
	keys := slices.Concat(groups...)
	keys = append(keys, restKeys()...)
	return append(keys,
		Key{Name: "rest.listen", Kind: String, Default: listen,
			Doc:     "address to serve HTTP on, host:port; beyond this host with rest.auth.token.file and TLS; port 0 takes a free one",
			Example: listen},
		Key{Name: "rest.port.file", Kind: String, Doc: "file to write the address (host:port) to that is really served; empty: none"},
		Key{Name: "log.level", Kind: String, Default: "info", OneOf: []string{"debug", "info", "warn", "error"}, Doc: "lowest level logged"},
		Key{Name: "log.format", Kind: String, Default: "json", OneOf: []string{"json", "console"}, Doc: "json (one object a line) or console"},
		Key{Name: "startup.timeout", Kind: Duration, Default: "30s", Doc: "how long to wait at start for what the service needs (Kafka, store, registry)"},
		Key{Name: "run.unprivileged", Kind: Bool, Default: "false", Doc: "refuse to run as root, or where the service could overwrite its own program; the container images set it"},
	)
}

// KafkaKeys are the keys of a service that connects to Kafka: bootstrap.servers, what secures the connections, and <role>.override.* for its
// roles (consumer, producer).
func KafkaKeys(roles ...string) []Key {
	keys := []Key{
		{Name: "bootstrap.servers", Kind: String, Doc: "Kafka brokers to ask first, host:port, comma separated",
			Example: "127.0.0.1:9092"},
		{Name: "security.protocol", Kind: String, Check: checkProtocol, Doc: "plaintext, ssl, sasl_plaintext or sasl_ssl, for every Kafka connection"},
		{Name: "sasl.mechanism", Kind: String, Check: oneOfOrNone("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"),
			Doc: "how the service proves who it is to Kafka, with sasl_ssl or sasl_plaintext: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM or GSSAPI"},
		{Name: "sasl.username", Kind: String, Doc: "user, for PLAIN and SCRAM"},
		{Name: "sasl.password", Kind: String, Secret: true, Doc: "its password"},
		{Name: "sasl.oauthbearer.method", Kind: String, Check: oneOfOrNone("default", "oidc"), Doc: "oidc: tokens from sasl.oauthbearer.token.endpoint.url; default: from sasl.oauthbearer.token.file"},
		{Name: "sasl.oauthbearer.token.endpoint.url", Kind: String, Doc: "where oidc gets its tokens (OAuth 2 client credentials)"},
		{Name: "sasl.oauthbearer.client.id", Kind: String, Doc: "client of oidc"},
		{Name: "sasl.oauthbearer.client.secret", Kind: String, Secret: true, Doc: "its secret"},
		{Name: "sasl.oauthbearer.scope", Kind: String, Doc: "scope asked for by oidc"},
		{Name: "sasl.oauthbearer.token.file", Kind: String, Doc: "file with a JWT that something else renews; read again before each expires"},
		{Name: "sasl.aws.region", Kind: String, Doc: "region of the cluster, for AWS_MSK_IAM; the credentials are those that AWS's tools find"},
		{Name: "ssl.ca.location", Kind: String, Doc: "file with the CA certificates (PEM) to trust for Kafka; empty: the system's"},
		{Name: "ssl.certificate.location", Kind: String, Doc: "file with the service's own certificate for Kafka (PEM)"},
		{Name: "ssl.key.location", Kind: String, Doc: "file with its private key (PEM)"},
		{Name: "ssl.key.password", Kind: String, Secret: true, Doc: "password of the private key"},
		{Name: "sasl.*", Doc: "further SASL settings of librdkafka, for every Kafka connection"},
		{Name: "ssl.*", Doc: "further TLS settings of librdkafka, for every Kafka connection"},
	}
	for _, role := range roles {
		keys = append(keys, Key{Name: role + ".override.*", Doc: "settings of librdkafka for " + role + "s, passed on as they are"})
	}
	return keys
}

func oneOfOrNone(allowed ...string) func(string) error {
	return func(s string) error {
		if s == "" || slices.Contains(allowed, s) {
			return nil
		}
		return fmt.Errorf("want one of %s", strings.Join(allowed, ", "))
	}
}

func checkProtocol(s string) error {
	switch strings.ToLower(s) {
	case "", "plaintext", "ssl", "sasl_plaintext", "sasl_ssl":
		return nil
	}
	return errors.New("want plaintext, ssl, sasl_plaintext or sasl_ssl")
}

// StoreKeys are the keys of a service that uses the archive.
func StoreKeys() []Key {
	return []Key{
		{Name: "store", Kind: String, Doc: "the archive: s3://bucket/prefix?endpoint=…&region=…&path-style=true or file:///directory",
			Example: "s3://tapedeck/archive?region=eu-central-1"},
		{Name: "topics.dir", Kind: String, Default: "topics", Doc: "first path element of segment names in the store"},
	}
}

// RegistryKeys are the keys of a service that asks a schema registry.
func RegistryKeys() []Key {
	return []Key{
		{Name: "schema.registry.url", Kind: String, Doc: "schema registry (Confluent's API); empty: none"},
		{Name: "schema.registry.basic.auth.user.info", Kind: String, Secret: true, Doc: "user:password for the schema registry"},
		{Name: "schema.registry.bearer.auth.token", Kind: String, Secret: true, Doc: "bearer token for the schema registry, instead of user and password"},
		{Name: "schema.registry.ssl.certificate.location", Kind: String, Doc: "file with the service's own certificate for the schema registry (PEM)"},
		{Name: "schema.registry.ssl.key.location", Kind: String, Doc: "file with its private key (PEM)"},
		{Name: "schema.registry.ssl.ca.location", Kind: String, Doc: "file with the CA certificates (PEM) to trust for the schema registry"},
	}
}

// ofAnother reports whether name is a setting that some service uses, in any of the groups.
func ofAnother(name string) bool {
	c := &Config{keys: slices.Concat(KafkaKeys("consumer", "producer"), StoreKeys(), RegistryKeys()), byName: map[string]Key{}}
	for _, k := range c.keys {
		c.byName[k.Name] = k
	}
	_, ok := c.lookup(name)
	return ok
}

// merge lets a later key of the same name replace an earlier one, keeping the earlier's place.
func merge(keys []Key) []Key {
	at := make(map[string]int, len(keys))
	out := make([]Key, 0, len(keys))
	for _, k := range keys {
		if i, ok := at[k.Name]; ok {
			out[i] = k
			continue
		}
		at[k.Name] = len(out)
		out = append(out, k)
	}
	return out
}
