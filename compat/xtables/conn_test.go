package xtables

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/budgettest"
	"github.com/sluice-mesh/sluice/rules"
)

// fakeTable returns a connection to a table. For each request, sizeOf returns the size of the table
// and the number of its entries. fakeTable counts the requests.
func fakeTable(requests *int, sizeOf func(request int) (size, count uint32)) *conn {
	getOnce := func(option int, b []byte) error {
		*requests++
		if size, count := sizeOf(*requests); option == optionGetInfo {
			byteOrder.PutUint32(b[nameSize+4*(1+2*hookCount):], count)
			byteOrder.PutUint32(b[nameSize+4*(2+2*hookCount):], size)
		}
		return nil
	}
	return &conn{
		layout: &layouts[0], table: "nat", getOnce: getOnce,
		maxCost: maxCost, deadline: time.Now().Add(maxReadTime),
	}
}

// TestTooLargeTableIsNotRead checks the limit of bytes and entries. A table at the limit is read.
func TestTooLargeTableIsNotRead(t *testing.T) {
	for _, tc := range []struct {
		size, count uint32
		want        error
	}{
		{100 << 20, 1000, ErrTooLarge},
		{400 << 20, 3_000_000, ErrTooLarge},
		{maxCost%entryCost + 1, maxCost / entryCost, ErrTooLarge},
		{maxCost % entryCost, maxCost / entryCost, nil},
	} {
		requests := 0
		budgettest.Bound{Processor: time.Second, Allocated: 1 << 20}.Check(t, "reading", func() {
			c := fakeTable(&requests, func(int) (uint32, uint32) { return tc.size, tc.count })
			if _, err := c.readBlob(); !errors.Is(err, tc.want) {
				t.Errorf("%d bytes, %d entries: error %v, want %v", tc.size, tc.count, err, tc.want)
			}
		})
		if tc.want != nil && requests != 1 {
			t.Errorf("%d requests for a table that is too large, want only the request for its size", requests)
		}
	}
}

// TestChangingTableIsReadForALimitedTime checks that the attempts to read a table that always
// changes share one buffer, and end after a number of attempts or after a time.
func TestChangingTableIsReadForALimitedTime(t *testing.T) {
	const size = 30 << 20
	var requests int
	c := fakeTable(&requests, func(request int) (uint32, uint32) { return size, uint32(request) })
	budgettest.Bound{Processor: 2 * time.Second, Allocated: size + 2<<20}.Check(t, "reading", func() {
		if _, err := c.readBlob(); !errors.Is(err, errBusy) {
			t.Errorf("error %v, want %v", err, errBusy)
		}
	})
	if requests > 2*maxReads+1 {
		t.Errorf("%d requests, want at most %d", requests, 2*maxReads+1)
	}

	c = fakeTable(&requests, func(request int) (uint32, uint32) {
		time.Sleep(maxReadTime / 4)
		return 0, uint32(request)
	})
	requests = 0
	if _, err := c.readBlob(); !errors.Is(err, errBusy) || requests > 10 {
		t.Errorf("error %v after %d slow requests, want %v after at most 10 requests", err,
			requests, errBusy)
	}
}

// TestUnreadableListOfTablesDoesNotAskForOtherPrivileges: the privilege to read the list is not
// CAP_NET_ADMIN, which the options need.
func TestUnreadableListOfTablesDoesNotAskForOtherPrivileges(t *testing.T) {
	err := withTable(nil, "read", ID{rules.IPv4, "nat"}, func(*conn) error {
		return fmt.Errorf("%w (needs root or CAP_DAC_OVERRIDE)", unix.EACCES)
	})
	const want = "iptables-legacy ip nat: read: permission denied (needs root or CAP_DAC_OVERRIDE)"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
