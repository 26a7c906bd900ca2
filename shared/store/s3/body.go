package s3

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// refuseBody makes a 2xx answer with a body an error. S3 answers a PutObject without one; a body is an error told late
// (200 was sent before the object was stored), or the page of a proxy.
func refuseBody(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("TapedeckRefuseBody", func(
		ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
	) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, meta, err := next.HandleDeserialize(ctx, in)
		resp, ok := out.RawResponse.(*smithyhttp.Response)
		if err != nil || !ok || resp.StatusCode/100 != 2 {
			return out, meta, err
		}
		body, err := readLimit(resp.Body, 64<<10)
		if err != nil {
			return out, meta, fmt.Errorf("%w: read its body: %w", errBody, err)
		}
		if text := bytes.TrimSpace(body); len(text) > 0 {
			return out, meta, fmt.Errorf("%w: HTTP %d with the body %.200q", errBody, resp.StatusCode, text)
		}
		resp.Body = io.NopCloser(bytes.NewReader(nil))
		return out, meta, nil
	}), middleware.After)
}
