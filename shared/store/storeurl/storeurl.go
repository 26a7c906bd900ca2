// Package storeurl opens a store by its address.
package storeurl

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/file"
	"tapedeck.dev/tapedeck/shared/store/mem"
	"tapedeck.dev/tapedeck/shared/store/s3"
)

// Forms are the accepted addresses, for help texts and errors.
const Forms = "s3://bucket/prefix?region=…&endpoint=…, file:///absolute/directory, or mem://name (tests)"

// Open opens the store of an address. Addresses are one of Forms; the options of s3:// are those of s3.Options. It makes no
// request; the start-up probe of the caller does. Its errors show no value of an option and nothing before an @.
func Open(ctx context.Context, addr string) (store.Store, error) {
	scheme, rest, ok := strings.Cut(addr, "://")
	if !ok {
		return nil, fmt.Errorf("store address %q has no scheme; give %s", harmless(addr), Forms)
	}
	u, err := url.Parse(addr)
	if err != nil {
		return nil, fmt.Errorf("store address %s://%s is not a URL; give %s", scheme, harmless(rest), Forms)
	}
	switch u.Scheme {
	case "s3":
		return s3.Open(ctx, u)
	case "file":
		if u.Host != "" || !strings.HasPrefix(u.Path, "/") || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("store address file://%s is not of the form file:///absolute/directory", harmless(rest))
		}
		return file.Open(u.Path)
	case "mem":
		if u.Host == "" || u.RawQuery != "" {
			return nil, fmt.Errorf("store address mem://%s is not of the form mem://name", harmless(rest))
		}
		return mem.Named(u.Host).Sub(u.Path), nil
	default:
		return nil, fmt.Errorf("store address has the unknown scheme %q; give %s", u.Scheme, Forms)
	}
}

// harmless cuts off what may be secret: options, and what stands before an @.
func harmless(s string) string {
	s, _, _ = strings.Cut(s, "?")
	if i := strings.LastIndex(s, "@"); i >= 0 {
		s = "…" + s[i:]
	}
	return s
}
