package testbed_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/nft/testbed"
)

func TestRetryDumpRepeatsAnInterruptedDump(t *testing.T) {
	errRefused := errors.New("refused")
	for _, row := range []struct {
		name string
		errs []error
		want []int
		err  error
	}{
		{"uninterrupted", []error{nil}, []int{1}, nil},
		{
			"interrupted twice",
			[]error{netlink.ErrDumpInterrupted, netlink.ErrDumpInterrupted, nil},
			[]int{3},
			nil,
		},
		{"refused", []error{netlink.ErrDumpInterrupted, errRefused, nil}, []int{2}, errRefused},
	} {
		t.Run(row.name, func(t *testing.T) {
			calls := 0
			got, err := testbed.RetryDump(func() ([]int, error) {
				calls++
				return []int{calls}, row.errs[calls-1]
			})
			if !slices.Equal(got, row.want) || !errors.Is(err, row.err) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
