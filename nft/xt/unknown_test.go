package xt_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// TestEqualityOfUnknownMatches compares the unknown matches that are decoded from two structures.
func TestEqualityOfUnknownMatches(t *testing.T) {
	pointer := numbers(0x1234, 0xffff8880)
	limit := func(average, state uint32) []byte {
		return pack(numbers(average, 5), numbers(state, 0), numbers(state, 9, 9, 0), pointer)
	}
	bpf := func(mode uint16, rest ...byte) []byte {
		return pack(mode, uint16(1), numbers(7), rest)
	}
	pinned := []byte("/sys/fs/bpf/x")
	for _, tc := range []struct {
		name     string
		match    string
		revision uint32
		a, b     []byte
		same     bool
	}{
		{"the same bytes", "string", 0, numbers(1, 0), numbers(1, 0), true},
		{"other bytes", "string", 0, numbers(1, 0), numbers(2, 0), false},
		{"padding", "string", 0, numbers(1), numbers(1, 0), true},
		{"only zeros", "string", 0, nil, numbers(0, 0), true},
		{"different state of the kernel", "limit", 0, limit(3, 0), limit(3, 17), true},
		{"another limit", "limit", 0, limit(3, 0), limit(4, 0), false},
		{
			"another revision, which may have another layout", "limit", 1, limit(3, 0),
			limit(3, 17), false,
		},
		{"a set, whose elements change", "set", 4, numbers(1), numbers(1), false},
		{"an account", "nfacct", 1, []byte("name"), []byte("name"), true},
		{"another account", "nfacct", 1, []byte("name"), []byte("other"), false},
		{"a program", "bpf", 1, bpf(0, 1, 2), bpf(0, 1, 2), true},
		{"another program", "bpf", 1, bpf(0, 1, 2), bpf(0, 1, 3), false},
		{"a pinned program", "bpf", 1, bpf(1, pinned...), bpf(1, pinned...), false},
		{"a program referenced by its descriptor", "bpf", 1, bpf(2), bpf(2), false},
	} {
		unknown := func(data []byte) rules.Unknown {
			matches := xt.DecodeMatch(&rules.Rule{}, rules.IPv4, xt.Extension{
				Name: tc.match, Revision: tc.revision, Data: data,
			})
			u, ok := matches[0].(rules.Unknown)
			if !ok || len(matches) != 1 {
				t.Fatalf("%s: decoded as %v, want one unknown match", tc.name, matches)
			}
			return u
		}
		a, b := unknown(tc.a), unknown(tc.b)
		if same := a == b && a.Data != rules.NoData; same != tc.same {
			t.Errorf("%s: %#v and %#v: equal %t, want %t", tc.name, a, b, same, tc.same)
		}
	}
}

func TestEffectDependsOnRevisionAndData(t *testing.T) {
	for _, tc := range []struct {
		match    string
		revision uint32
		data     []byte
		want     rules.Effect
	}{
		{"length", 0, numbers(1), rules.Reads},
		{"length", 1, numbers(1), rules.AnyEffect}, // a revision that Linux 6.18 does not have
		{"limit", 0, numbers(1), rules.ReadsVarying},
		{"quota", 0, numbers(0, 0, 0, 0), rules.ReadsHistory},
		{"recent", 1, zeros(228), rules.ReadsHistory},
		// Mode 0 is a probability in units of 2^-31, mode 1 an interval minus one.
		{"statistic", 0, numbers(0, 1<<30, 0, 0), rules.ReadsVarying},
		{"statistic", 0, numbers(0, 0, 0, 0), rules.Reads},
		{"statistic", 0, numbers(0, 1<<31, 0, 0), rules.Reads},
		{"statistic", 0, numbers(1, 1, 0, 0), rules.ReadsVarying},
		{"statistic", 0, numbers(1, 0, 0, 0), rules.Reads},
		{"statistic", 0, numbers(2, 1), rules.Reads}, // a mode that the kernel rejects
		{"statistic", 0, numbers(0), rules.Reads},
		{"bpf", 1, numbers(1), rules.Reads},
		{"cluster", 0, numbers(1), rules.AnyEffect},
		{"geoip", 0, numbers(1), rules.AnyEffect}, // a match that is not part of the kernel
		{"socket", 0, nil, rules.Reads},
		{"socket", 2, []byte{2}, rules.Reads},
		{"socket", 3, []byte{4}, rules.AnyEffect},
		{"socket", 3, []byte{8}, rules.AnyEffect},
		{"socket", 4, []byte{0}, rules.AnyEffect},
	} {
		x := xt.Extension{Name: tc.match, Revision: tc.revision, Data: tc.data}
		got := xt.DecodeMatch(&rules.Rule{}, rules.IPv4, x)[0].(rules.Unknown)
		if got.Effect != tc.want {
			t.Errorf("%s revision %d %x: effect %d, want %d", tc.match, tc.revision, tc.data,
				got.Effect, tc.want)
		}
	}
}
