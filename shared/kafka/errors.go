package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// Errors that this package's errors wrap.
var (
	ErrUnreachable  = errors.New("kafka is unreachable")      // no broker answered within the bound
	ErrFenced       = errors.New("fenced by a newer process") // producer fenced, or the group moved on: stop using this object
	ErrAbortable    = errors.New("transaction must be aborted")
	ErrNotFound     = errors.New("no such topic or partition")
	ErrExists       = errors.New("topic exists")
	ErrUnauthorized = errors.New("not authorized")
	// Both are ErrUnauthorized too.
	ErrTopicUnauthorized = fmt.Errorf("%w for the topic", ErrUnauthorized)
	ErrGroupUnauthorized = fmt.Errorf("%w for the group", ErrUnauthorized)

	// ErrTruncated: the log no longer holds the record before the position that was asked for (its leader epoch tells).
	ErrTruncated = errors.New("the log was truncated")
	// ErrCorrupt: a batch of the log cannot be read; the records behind it are not handed over.
	ErrCorrupt = errors.New("the log holds a batch that cannot be read")
	// ErrRebalancing: the group is changing its members; call again after the next Poll.
	ErrRebalancing = errors.New("the group is rebalancing")
	// ErrFatal: this producer or consumer cannot go on; make a new one.
	ErrFatal = errors.New("the kafka client cannot go on")
	// ErrCannotProduce: the record will never be taken as it is: it has a shape that this producer would silently change (see
	// Producer.Send), or the client or the broker refuses it by its size, timestamp or form. Sending it again is of no use.
	ErrCannotProduce = errors.New("the record cannot be produced as it is")
	// ErrClosed: the object was closed.
	ErrClosed = errors.New("kafka client is closed")
)

// wrap adds action and, where the cause is of a known kind, the error of this package that says so.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	action := fmt.Sprintf(format, args...)
	kinds := kindsOf(err)
	switch len(kinds) {
	case 0:
		return fmt.Errorf("%s: %w", action, err)
	case 1:
		return fmt.Errorf("%s: %w: %w", action, kinds[0], err)
	default:
		return fmt.Errorf("%s: %w: %w: %w", action, kinds[0], kinds[1], err)
	}
}

// kindsOf returns the errors of this package that err stands for: none, one, or ErrFenced with ErrAbortable.
func kindsOf(err error) []error {
	if errors.Is(err, context.DeadlineExceeded) {
		return []error{ErrUnreachable}
	}
	var ke kafka.Error
	if !errors.As(err, &ke) {
		return nil
	}
	var kinds []error
	if k := kindOfCode(ke.Code()); k != nil {
		kinds = append(kinds, k)
	} else if ke.IsFatal() {
		kinds = append(kinds, ErrFatal)
	}
	if ke.TxnRequiresAbort() {
		kinds = append(kinds, ErrAbortable)
	}
	return kinds
}

func kindOfCode(code kafka.ErrorCode) error {
	switch code {
	case kafka.ErrTransport, kafka.ErrAllBrokersDown, kafka.ErrResolve, kafka.ErrTimedOut, kafka.ErrTimedOutQueue,
		kafka.ErrBrokerNotAvailable, kafka.ErrNetworkException, kafka.ErrRequestTimedOut:
		return ErrUnreachable
	case kafka.ErrUnknownTopicOrPart, kafka.ErrUnknownTopic, kafka.ErrUnknownPartition, kafka.ErrUnknownTopicID:
		return ErrNotFound
	case kafka.ErrTopicAlreadyExists:
		return ErrExists
	case kafka.ErrTopicAuthorizationFailed:
		return ErrTopicUnauthorized
	case kafka.ErrGroupAuthorizationFailed:
		return ErrGroupUnauthorized
	case kafka.ErrClusterAuthorizationFailed,
		kafka.ErrTransactionalIDAuthorizationFailed, kafka.ErrSaslAuthenticationFailed, kafka.ErrAuthentication:
		return ErrUnauthorized
	case kafka.ErrFenced, kafka.ErrProducerFenced, kafka.ErrInvalidProducerEpoch, kafka.ErrFencedInstanceID,
		kafka.ErrIllegalGeneration, kafka.ErrUnknownMemberID, kafka.ErrStaleMemberEpoch, kafka.ErrFencedMemberEpoch,
		kafka.ErrAssignmentLost:
		return ErrFenced
	case kafka.ErrRebalanceInProgress:
		return ErrRebalancing
	case kafka.ErrMsgSizeTooLarge, kafka.ErrRecordListTooLarge, kafka.ErrInvalidRecord, kafka.ErrInvalidTimestamp,
		kafka.ErrQueueFull: // Send hands it on only where the record alone does not fit
		return ErrCannotProduce
	}
	return nil
}

// errorCode returns the code of a kafka.Error within err, or ErrNoError.
func errorCode(err error) kafka.ErrorCode {
	var ke kafka.Error
	if errors.As(err, &ke) {
		return ke.Code()
	}
	return kafka.ErrNoError
}
