// Package waiting runs packages of tests that wait more than they compute: for a group to settle, for an age to pass.
package waiting

import (
	"flag"
	"testing"
)

// Run is m.Run with up to n parallel tests at once, where the command line does not say how many; the default of one per processor would
// leave the processors idle. n bounds what the tests hold in memory, a broker each.
func Run(m *testing.M, n string) int {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		if err := flag.Set("test.parallel", n); err != nil {
			panic(err) // n is a constant of the caller
		}
	}
	return m.Run()
}
