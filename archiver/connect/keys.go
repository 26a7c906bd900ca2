package connect

import (
	"maps"
	"slices"
	"strings"
)

func (c *conversion) registry() {
	urls := map[string]string{}
	for _, side := range []string{"value.converter.", "key.converter."} {
		if v, ok := c.take(side + "schema.registry.url"); ok && v != "" {
			urls[side] = v
		}
		user, ok := c.take(side + "schema.registry.basic.auth.user.info")
		if !ok {
			user, ok = c.take(side + "basic.auth.user.info")
		}
		c.take(side + "basic.auth.user.info")
		if _, have := c.out["schema.registry.basic.auth.user.info"]; ok && user != "" && !have {
			c.set("schema.registry.basic.auth.user.info", user, side+"basic.auth.user.info")
		}
		if v, ok := c.take(side + "basic.auth.credentials.source"); ok && v != "USER_INFO" && v != "" {
			c.refuse(side+"basic.auth.credentials.source", "%s: the archiver takes USER_INFO only", v)
		}
	}
	v, k := urls["value.converter."], urls["key.converter."]
	switch {
	case v != "" && k != "" && v != k:
		c.refuse("key.converter.schema.registry.url", "keys and values have different registries; the archiver asks one")
	case v != "":
		c.set("schema.registry.url", v, "value.converter.schema.registry.url")
	case k != "":
		c.set("schema.registry.url", k, "key.converter.schema.registry.url")
	}
	if u := c.out["schema.registry.url"].Value; strings.Contains(u, ",") {
		c.refuse("value.converter.schema.registry.url", "several addresses; the archiver takes one")
	}
	for _, key := range slices.Sorted(maps.Keys(c.cfg)) {
		if c.done[key] || !strings.HasPrefix(key, "key.converter") && !strings.HasPrefix(key, "value.converter") && key != "header.converter" {
			continue
		}
		c.done[key] = true
		c.note("%s: nothing is converted; bytes are archived as Kafka holds them", key)
	}
}

// sameInLibrdkafka are consumer settings whose name and meaning are the same in librdkafka.
var sameInLibrdkafka = []string{
	"client.id", "client.rack", "group.instance.id", "fetch.min.bytes", "fetch.max.bytes", "max.partition.fetch.bytes", "heartbeat.interval.ms",
	"max.poll.interval.ms", "metadata.max.age.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "receive.buffer.bytes", "send.buffer.bytes",
}

// withoutEffect are consumer settings of the Java client that have no meaning here, and whose absence changes nothing that is archived.
var withoutEffect = []string{
	"max.poll.records", "request.timeout.ms", "default.api.timeout.ms", "enable.auto.commit", "auto.commit.interval.ms", "key.deserializer", "value.deserializer",
	"partition.assignment.strategy", "exclude.internal.topics", "check.crcs", "client.dns.lookup", "connections.max.idle.ms", "retry.backoff.ms",
	"interceptor.classes", "metric.reporters", "enable.idempotence",
}

func (c *conversion) overrides() {
	const prefix = "consumer.override."
	for _, key := range slices.Sorted(maps.Keys(c.cfg)) {
		name, ok := strings.CutPrefix(key, prefix)
		if !ok || c.done[key] {
			continue
		}
		v, _ := c.take(key)
		switch {
		case name == "group.id":
		case name == "bootstrap.servers" || name == "isolation.level" || name == "session.timeout.ms" || name == "security.protocol":
			c.set(name, v, key)
		case name == "sasl.mechanism" && v != "OAUTHBEARER":
			c.set("sasl.mechanism", v, key)
		case name == "fetch.max.wait.ms":
			c.set(prefix+"fetch.wait.max.ms", v, key)
		case name == "auto.offset.reset" && (v == "earliest" || v == "latest"):
			c.set("start", v, key)
		case slices.Contains(sameInLibrdkafka, name):
			c.set(key, v, key)
		case slices.Contains(withoutEffect, name):
			c.note("%s: a setting of the Java client; without effect", key)
		case strings.HasPrefix(name, "sasl."):
			c.refuse(key, "the archiver's client takes sasl.mechanism, sasl.username and sasl.password; leave the key out and give those")
		case strings.HasPrefix(name, "ssl."):
			c.refuse(key, "the archiver's client takes PEM files, not Java stores; leave the key out and give ssl.ca.location, ssl.certificate.location and ssl.key.location")
		default:
			c.refuse(key, "not known to be the same in librdkafka; leave it out, or give consumer.override.… in its words")
		}
	}
	if _, ok := c.out["isolation.level"]; !ok {
		c.note("isolation.level: read_committed, the archiver's default; the sink reads uncommitted records too unless its worker says otherwise")
	}
}

// ignored are keys of the sink or of Connect that decide nothing which an archive of whole records does not decide by itself. A name that
// ends in a dot stands for all that begin so.
var ignored = map[string]string{
	"schema.compatibility":            "values are not decoded: a change of schema splits no segment",
	"schema.cache.size":               "",
	"schema.generator.class":          "",
	"enhanced.avro.schema.support":    "",
	"connect.meta.data":               "",
	"allow.optional.map.keys":         "",
	"value.subject.name.strategy":     "",
	"parquet.codec":                   "",
	"format.bytearray.":               "",
	"keys.format.class":               "keys are in the same record",
	"headers.format.class":            "headers are in the same record",
	"locale":                          "no name depends on it",
	"path.format":                     "no name depends on a time",
	"partition.duration.ms":           "no name depends on a time",
	"timestamp.extractor":             "",
	"timestamp.field":                 "",
	"rotate.file.on.partition.change": "",
	"s3.compression.type":             "compression is codec",
	"s3.compression.level":            "",
	"s3.part.retries":                 "creates are repeated until the store answers",
	"s3.retry.backoff.ms":             "",
	"s3.wan.mode":                     "",
	"s3.http.send.expect.continue":    "",
	"s3.proxy.password":               "",
	"s3.schema.partition.affix.type":  "",
	"s3.elastic.buffer.":              "memory is bounded by memory.max.bytes",
	"s3.credentials.provider.class":   "credentials come from the AWS SDK's usual places: environment, profile, role",
	"s3.credentials.provider.":        "credentials come from the AWS SDK's usual places: environment, profile, role",
	"retry.backoff.ms":                "",
	"shutdown.timeout.ms":             "",
	"predicates":                      "",
	"predicates.":                     "",
	"transforms.":                     "",
	"errors.":                         "nothing is converted, so that no record is bad; nothing is dropped",
	"config.action.reload":            "",
	"confluent.":                      "",
	"reporter.":                       "",
	"topic.creation.":                 "",
	"producer.override.":              "",
	"admin.override.":                 "",
}

// rest notes what has no effect, and refuses what is not known: it could be a filter.
func (c *conversion) rest() {
	for _, key := range slices.Sorted(maps.Keys(c.cfg)) {
		if c.done[key] {
			continue
		}
		why, known := ignored[key]
		for name, w := range ignored {
			if strings.HasSuffix(name, ".") && strings.HasPrefix(key, name) {
				why, known = w, true
			}
		}
		switch {
		case !known:
			c.refuse(key, "not known as a setting of the sink; leave it out if it does not matter")
		case why == "":
			c.note("%s: without effect", key)
		default:
			c.note("%s: without effect: %s", key, why)
		}
	}
}
