package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// errNoMemberID: the client library does not tell the member's id.
var errNoMemberID = errors.New("the member's id is not known")

// IsMember asks the group's coordinator whether it lists this consumer. known is false where that cannot be said: it has not joined, or it
// joined anew meanwhile. Other than what librdkafka believes, this also finds a membership that was lost without a word. It needs the right to
// describe the group, which the right to read it includes.
func (c *Consumer) IsMember(ctx context.Context) (is, known bool, err error) {
	before, err := c.memberID()
	if err != nil || before == "" {
		return false, false, err
	}
	if err := c.begin(); err != nil {
		return false, false, fmt.Errorf("describe group %s: %w", c.group, err)
	}
	defer c.ops.Done()
	ctx, cancel := bounded(ctx)
	defer cancel()
	res, err := c.admin.DescribeConsumerGroups(ctx, []string{c.group})
	if err != nil {
		return false, false, wrap(err, "describe group %s", c.group)
	}
	if len(res.ConsumerGroupDescriptions) != 1 {
		return false, false, fmt.Errorf("describe group %s: %d answers", c.group, len(res.ConsumerGroupDescriptions))
	}
	g := res.ConsumerGroupDescriptions[0]
	if code := g.Error.Code(); code != kafka.ErrNoError && code != kafka.ErrGroupIDNotFound {
		return false, false, wrap(g.Error, "describe group %s", c.group)
	}
	for _, m := range g.Members {
		if m.ConsumerID == before {
			return true, true, nil
		}
	}
	after, err := c.memberID()
	return false, err == nil && after == before, err
}

// memberID reads the id out of librdkafka's serialized group metadata (rdkafka_cgrp.c, rd_kafka_consumer_group_metadata_write): the Go client does
// not hand it out. The layout is magic, generation (4 bytes), group and member, each ended by a zero byte. "" before the first join.
func (c *Consumer) memberID() (string, error) {
	gm, err := c.GroupMetadata()
	if errors.Is(err, ErrFenced) {
		return "", nil // told already: it joins anew
	}
	if err != nil {
		return "", err
	}
	f := reflect.ValueOf(gm.m).Elem().FieldByName("serialized")
	if !f.IsValid() || f.Kind() != reflect.Slice || f.Type().Elem().Kind() != reflect.Uint8 {
		return "", errNoMemberID
	}
	return parseMemberID(f.Bytes(), c.group)
}

func parseMemberID(b []byte, group string) (string, error) {
	rest, ok := bytes.CutPrefix(b, []byte("CGMDv2:"))
	if !ok || len(rest) < 4 {
		return "", errNoMemberID
	}
	g, rest, ok := bytes.Cut(rest[4:], []byte{0})
	if !ok || string(g) != group {
		return "", errNoMemberID
	}
	m, _, ok := bytes.Cut(rest, []byte{0})
	if !ok {
		return "", errNoMemberID
	}
	return string(m), nil
}
