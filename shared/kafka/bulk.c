//go:build linux && cgo

// Many events of librdkafka in one call from Go. bulk.go says why, and what keeps it safe.

#include "bulk.h"

#include <string.h>

// librdkafka's public interface, as far as it is used here: part of its ABI since 1.x. Declared here because the header of the library is
// inside another module; weak, because the library is linked by that module and not by this package.
typedef struct {
  int err;
  void *rkt;
  int32_t partition;
  void *payload;
  size_t len;
  void *key;
  size_t key_len;
  int64_t offset;
  void *_private;
} message_t;

#define WEAK __attribute__((weak))
extern void *rd_kafka_queue_poll(void *, int) WEAK;
extern int rd_kafka_event_type(const void *) WEAK;
extern const message_t *rd_kafka_event_message_next(void *) WEAK;
extern void rd_kafka_event_destroy(void *) WEAK;
extern int64_t rd_kafka_message_timestamp(const message_t *, int *) WEAK;
extern int32_t rd_kafka_message_leader_epoch(const message_t *) WEAK;
extern int rd_kafka_message_headers(const message_t *, void **) WEAK;
extern size_t rd_kafka_header_cnt(const void *) WEAK;
extern int rd_kafka_header_get_all(const void *, size_t, const char **, const void **, size_t *) WEAK;
extern const char *rd_kafka_topic_name(const void *) WEAK;
extern int rd_kafka_event_error(void *) WEAK;
extern const char *rd_kafka_event_error_string(void *) WEAK;
extern int rd_kafka_event_error_is_fatal(void *) WEAK;
extern int rd_kafka_fatal_error(void *, char *, size_t) WEAK;
extern const char *rd_kafka_event_config_string(void *) WEAK;
extern tapedeck_list *rd_kafka_event_topic_partition_list(void *) WEAK;
extern tapedeck_part *rd_kafka_event_topic_partition(void *) WEAK;
extern void rd_kafka_topic_partition_destroy(tapedeck_part *) WEAK;
extern int rd_kafka_version(void) WEAK;

int tapedeck_usable(void) {
  return rd_kafka_queue_poll && rd_kafka_event_type && rd_kafka_event_message_next && rd_kafka_event_destroy &&
         rd_kafka_message_timestamp && rd_kafka_message_leader_epoch && rd_kafka_message_headers && rd_kafka_header_cnt &&
         rd_kafka_header_get_all && rd_kafka_topic_name && rd_kafka_event_error && rd_kafka_event_error_string &&
         rd_kafka_event_error_is_fatal && rd_kafka_fatal_error && rd_kafka_event_config_string &&
         rd_kafka_event_topic_partition_list && rd_kafka_event_topic_partition && rd_kafka_topic_partition_destroy &&
         rd_kafka_version && rd_kafka_version() >> 24 == 2;
}

// size is what a message takes of the memory: name, key, value, then for each header the lengths of its key and value, and both.
static size_t size(const message_t *m, int with_name, void **headers, size_t *count) {
  size_t n = (m->payload ? m->len : 0) + (m->key ? m->key_len : 0);
  if (with_name)
    n += strlen(rd_kafka_topic_name(m->rkt));
  *headers = NULL;
  *count = 0;
  if (!rd_kafka_message_headers(m, headers)) {
    const char *key;
    const void *val;
    size_t len;
    *count = rd_kafka_header_cnt(*headers);
    for (size_t i = 0; i < *count && !rd_kafka_header_get_all(*headers, i, &key, &val, &len); i++)
      n += 8 + strlen(key) + (val ? len : 0);
  }
  return n;
}

static char *put(char *to, const void *from, size_t n) {
  if (n)
    memcpy(to, from, n);
  return to + n;
}

static void copy(const message_t *m, int with_name, void *headers, size_t count, tapedeck_msg *out, char *mem, size_t at) {
  char *to = mem + at;
  int tstype = 0;
  out->at = at;
  out->offset = m->offset;
  out->partition = m->partition;
  out->err = m->err;
  out->ts = rd_kafka_message_timestamp(m, &tstype);
  out->ts_type = tstype;
  out->epoch = rd_kafka_message_leader_epoch(m);
  out->headers = (int32_t)count;
  out->name_len = -1;
  if (with_name) {
    const char *name = rd_kafka_topic_name(m->rkt);
    out->name_len = (int32_t)strlen(name);
    to = put(to, name, out->name_len);
  }
  out->key_len = m->key ? (int64_t)m->key_len : -1;
  to = put(to, m->key, m->key ? m->key_len : 0);
  out->value_len = m->payload ? (int64_t)m->len : -1;
  to = put(to, m->payload, m->payload ? m->len : 0);
  for (size_t i = 0; i < count; i++) {
    const char *key;
    const void *val;
    size_t len;
    int32_t lens[2];
    if (rd_kafka_header_get_all(headers, i, &key, &val, &len)) {
      out->headers = (int32_t)i;
      break;
    }
    lens[0] = (int32_t)strlen(key);
    lens[1] = val ? (int32_t)len : -1;
    to = put(to, lens, sizeof lens);
    to = put(to, key, lens[0]);
    to = put(to, val, val ? len : 0);
  }
  out->end = to - mem;
}

void tapedeck_fetch(void *queue, int timeout_ms, tapedeck_batch *b, tapedeck_msg *msgs, int max, char *mem, size_t cap) {
  void *rkt = NULL;
  size_t used = 0;
  b->n = 0;
  b->event = b->large = NULL;
  b->type = 0;
  while (b->n < max) {
    void *ev = rd_kafka_queue_poll(queue, b->n ? 0 : timeout_ms);
    if (!ev)
      return;
    if ((b->type = rd_kafka_event_type(ev)) != TAPEDECK_FETCH) {
      b->event = ev;
      return;
    }
    const message_t *m = rd_kafka_event_message_next(ev);
    if (!m) {
      rd_kafka_event_destroy(ev);
      continue;
    }
    void *headers;
    size_t count, n = size(m, m->rkt != rkt, &headers, &count);
    if (n > cap - used) { // the caller brings memory for it, at once
      if (m->rkt == rkt)
        n = size(m, 1, &headers, &count);
      b->large = ev;
      b->large_msg = m;
      b->large_size = n;
      return;
    }
    copy(m, m->rkt != rkt, headers, count, &msgs[b->n++], mem, used);
    used = msgs[b->n - 1].end;
    rkt = m->rkt;
    rd_kafka_event_destroy(ev);
  }
}

void tapedeck_take_large(tapedeck_batch *b, tapedeck_msg *out, char *mem) {
  const message_t *m = b->large_msg;
  void *headers;
  size_t count;
  size(m, 1, &headers, &count);
  copy(m, 1, headers, count, out, mem, 0);
  rd_kafka_event_destroy(b->large);
  b->large = NULL;
}

void tapedeck_error(void *rk, void *ev, int *code, int *fatal, char *text, size_t cap) {
  *code = rd_kafka_event_error(ev);
  *fatal = rd_kafka_event_error_is_fatal(ev);
  if (*fatal) {
    *code = rd_kafka_fatal_error(rk, text, cap);
    return;
  }
  const char *s = rd_kafka_event_error_string(ev);
  strncpy(text, s ? s : "", cap - 1);
  text[cap - 1] = 0;
}

int tapedeck_event_code(void *ev) { return rd_kafka_event_error(ev); }
const char *tapedeck_event_config(void *ev) { return rd_kafka_event_config_string(ev); }
tapedeck_list *tapedeck_event_list(void *ev) { return rd_kafka_event_topic_partition_list(ev); }
tapedeck_part *tapedeck_event_part(void *ev) { return rd_kafka_event_topic_partition(ev); }
void tapedeck_part_free(tapedeck_part *p) { rd_kafka_topic_partition_destroy(p); }
void tapedeck_event_free(void *ev) { rd_kafka_event_destroy(ev); }
