#ifndef TAPEDECK_BULK_H
#define TAPEDECK_BULK_H

#include <stddef.h>
#include <stdint.h>

// Kinds of librdkafka's events.
enum {
  TAPEDECK_FETCH = 0x2,
  TAPEDECK_ERROR = 0x8,
  TAPEDECK_REBALANCE = 0x10,
  TAPEDECK_TOKEN_REFRESH = 0x100,
};

// tapedeck_part and tapedeck_list are librdkafka's rd_kafka_topic_partition_t and its list.
typedef struct {
  char *topic;
  int32_t partition;
  int64_t offset;
  void *metadata;
  size_t metadata_size;
  void *opaque;
  int err;
  void *_private;
} tapedeck_part;

typedef struct {
  int cnt;
  int size;
  tapedeck_part *elems;
} tapedeck_list;

// tapedeck_msg is one message; its bytes are at [at, end) of the memory: name, key, value, headers. A length of -1 is null; the name is
// there where the message before it in the batch is of another topic.
typedef struct {
  size_t at, end;
  int64_t offset, ts, key_len, value_len;
  int32_t partition, err, ts_type, epoch, headers, name_len;
} tapedeck_msg;

// tapedeck_batch is the answer of a fetch: n messages; then either nothing, or an event that is no message, or a message that does not
// fit. Event and message are the caller's, who must free (take) them before it polls again.
typedef struct {
  int n;
  int type; // of event
  void *event;
  void *large;
  const void *large_msg;
  size_t large_size;
} tapedeck_batch;

int tapedeck_usable(void);
void tapedeck_fetch(void *queue, int timeout_ms, tapedeck_batch *b, tapedeck_msg *msgs, int max, char *mem, size_t cap);
void tapedeck_take_large(tapedeck_batch *b, tapedeck_msg *out, char *mem);
void tapedeck_error(void *rk, void *ev, int *code, int *fatal, char *text, size_t cap);
int tapedeck_event_code(void *ev);
const char *tapedeck_event_config(void *ev);
tapedeck_list *tapedeck_event_list(void *ev);
tapedeck_part *tapedeck_event_part(void *ev);
void tapedeck_part_free(tapedeck_part *p);
void tapedeck_event_free(void *ev);

#endif
