package mem_test

import (
	"testing"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
	"tapedeck.dev/tapedeck/shared/store/storetest"
)

func TestSuite(t *testing.T) {
	root := mem.New()
	storetest.Run(t, func(t *testing.T, prefix string) store.Store { return root.Sub(prefix) })
}
