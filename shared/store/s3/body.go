package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"slices"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
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
		resp.Body = replacedBody{bytes.NewReader(nil), resp.Body}
		return out, meta, nil
	}), middleware.After)
}

// listingLimit bounds the text of one page of a listing in bytes: 1000 keys of 1024 bytes, each byte escaped, have 7 MB.
const listingLimit = 32 << 20

// wholeListing makes an answer to a listing an error if its body breaks off or is no listing. The SDK takes any page, such
// as a proxy's for people, for a listing without objects; and an archive that seems empty is a bad thing to act on.
func wholeListing(o *awss3.Options) {
	o.APIOptions = append(slices.Clone(o.APIOptions), func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("TapedeckWholeListing", func(
			ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
		) (middleware.DeserializeOutput, middleware.Metadata, error) {
			out, meta, err := next.HandleDeserialize(ctx, in)
			resp, ok := out.RawResponse.(*smithyhttp.Response)
			if err != nil || !ok || resp.StatusCode/100 != 2 {
				return out, meta, err
			}
			body, err := readLimit(resp.Body, listingLimit)
			if err != nil {
				return out, meta, fmt.Errorf("%w after %d bytes: %w", errBroken, len(body), err)
			}
			if root := rootElement(body); root != "ListBucketResult" {
				return out, meta, fmt.Errorf("%w: HTTP %d with the body %.200q", errBody, resp.StatusCode, body)
			}
			resp.Body = replacedBody{bytes.NewReader(body), resp.Body}
			return out, meta, nil
		}), middleware.After)
	})
}

// replacedBody reads from one place and closes another.
type replacedBody struct {
	io.Reader
	io.Closer
}

// rootElement is the name of the outermost element of an XML text, "" where it is none.
func rootElement(text []byte) string {
	d := xml.NewDecoder(bytes.NewReader(text))
	for {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		if start, ok := token.(xml.StartElement); ok {
			return start.Name.Local
		}
	}
}
