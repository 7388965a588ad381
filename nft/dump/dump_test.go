package dump_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sluice-mesh/sluice/nft/dump"
)

func TestRetryRepeatsAnInterruptedDump(t *testing.T) {
	errRefused := errors.New("refused")
	for _, tc := range []struct {
		name    string
		errs    []error // the error of each call
		want    []int   // the number of the last call
		wantErr error
	}{
		{"uninterrupted", []error{nil}, []int{1}, nil},
		{
			"interrupted twice",
			[]error{netlink.ErrDumpInterrupted, netlink.ErrDumpInterrupted, nil},
			[]int{3},
			nil,
		},
		{
			"always interrupted",
			[]error{netlink.ErrDumpInterrupted, netlink.ErrDumpInterrupted, netlink.ErrDumpInterrupted},
			[]int{3},
			netlink.ErrDumpInterrupted,
		},
		{"refused", []error{netlink.ErrDumpInterrupted, errRefused, nil}, []int{2}, errRefused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls := 0
			got, err := dump.Retry(3, func() ([]int, error) {
				calls++
				return []int{calls}, tc.errs[calls-1]
			})
			if !slices.Equal(got, tc.want) || !errors.Is(err, tc.wantErr) {
				t.Errorf("got %v, error %v, want %v, error %v", got, err, tc.want, tc.wantErr)
			}
		})
	}
}
