// Package storeurl opens a store by its address.
package storeurl

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// Forms are the accepted addresses, for help texts and errors.
const Forms = "s3://bucket/prefix?region=…&endpoint=…, file:///absolute/directory, or mem://name (tests)"

// Open opens the store of an address. Addresses are one of Forms; the options of s3:// are described at s3.Options. It makes
// no call to the store; the start-up probe of the caller does.
func Open(ctx context.Context, addr string) (store.Store, error) {
	scheme, _, ok := strings.Cut(addr, "://")
	if !ok {
		return nil, fmt.Errorf("store address %q has no scheme; give %s", addr, Forms)
	}
	u, err := url.Parse(addr)
	if err != nil {
		return nil, fmt.Errorf("store address with scheme %s is not a URL; give %s", scheme, Forms)
	}
	switch scheme {
	case "mem":
		if u.Host == "" {
			return nil, fmt.Errorf("store address %q has no name; give mem://name", addr)
		}
		return mem.Named(u.Host).Sub(u.Path), nil
	default:
		return nil, fmt.Errorf("store address has the unknown scheme %q; give %s", scheme, Forms)
	}
}
