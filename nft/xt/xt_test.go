package xt_test

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// info writes a structure: 32-bit numbers, then bytes.
func info(numbers []uint32, rest ...byte) []byte {
	var b []byte
	for _, n := range numbers {
		b = binary.NativeEndian.AppendUint32(b, n)
	}
	return append(b, rest...)
}

const all = ^uint32(0)

func TestMatch(t *testing.T) {
	one := func(id uint32) []rules.IDRange { return []rules.IDRange{{First: id, Last: id}} }
	ids := []uint32{1337, 1337, 1338, 1339}
	unknown := func(text string) []rules.Match { return []rules.Match{rules.Unknown{Text: text}} }
	for _, tc := range []struct {
		name     string
		match    string
		revision uint32
		info     []byte
		want     []rules.Match
	}{
		{"--mark 0x539", "mark", 1, info([]uint32{0x539, all}, 0, 0, 0, 0), []rules.Match{rules.MatchMark{Value: 0x539, Mask: all}}},
		{"! --mark 0x1/0xf", "mark", 1, info([]uint32{1, 15}, 1), []rules.Match{rules.MatchMark{Not: true, Value: 1, Mask: 15}}},
		{"an older mark", "mark", 0, info([]uint32{1, 15}, 1), unknown("match mark revision 0")},
		{"a mark cut short", "mark", 1, info([]uint32{1, 15}), unknown("match mark revision 1")},
		{"connmark", "connmark", 1, info([]uint32{1, all}, 0), []rules.Match{rules.MatchMark{Conntrack: true, Value: 1, Mask: all}}},
		{"--uid-owner 1337", "owner", 1, info(ids, 1, 0), []rules.Match{rules.MatchOwner{IDs: one(1337)}}},
		{"! --gid-owner 1338-1339", "owner", 1, info(ids, 2, 2), []rules.Match{
			rules.MatchOwner{Group: true, Not: true, Socketless: true, IDs: []rules.IDRange{{First: 1338, Last: 1339}}},
		}},
		{"user and not group", "owner", 1, info([]uint32{1, 1, 2, 2}, 3, 2), []rules.Match{
			rules.MatchOwner{IDs: one(1)}, rules.MatchOwner{Group: true, Not: true, Socketless: true, IDs: one(2)},
		}},
		{"--socket-exists", "owner", 1, info(ids, 4, 0), unknown("match owner revision 1")},
		{"--suppl-groups", "owner", 1, info(ids, 10, 0), unknown("match owner revision 1")},
		{"an owner of nobody", "owner", 1, info(ids, 0, 0), unknown("match owner revision 1")},
		{"an owner whose range is reversed", "owner", 1, info([]uint32{2, 1, 0, 0}, 1, 0), unknown("match owner revision 1")},
		{"another match", "comment", 0, []byte("hello"), unknown("match comment revision 0")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, xt.Match(tc.match, tc.revision, tc.info)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTarget(t *testing.T) {
	for _, tc := range []struct {
		name     string
		target   string
		revision uint32
		info     []byte
		want     rules.Action
	}{
		{"--set-mark 0x53a", "MARK", 2, info([]uint32{0x53a, all}), rules.SetMark{Value: 0x53a, Mask: all}},
		{"--set-mark 1/15", "MARK", 2, info([]uint32{1, 15}), rules.SetMark{Value: 1, Mask: 15}},
		{"--xor-mark 1", "MARK", 2, info([]uint32{1, 0}), rules.Unknown{Text: "target MARK revision 2"}},
		{"a mark cut short", "MARK", 2, info([]uint32{1}), rules.Unknown{Text: "target MARK revision 2"}},
		{"an older mark", "MARK", 1, info([]uint32{1, 15}), rules.Unknown{Text: "target MARK revision 1"}},
		{"--save-mark", "CONNMARK", 1, info([]uint32{0, all, all}, 1), rules.SaveMark{}},
		{"--restore-mark", "CONNMARK", 1, info([]uint32{0, all, all}, 2), rules.RestoreMark{}},
		{"--save-mark of newer iptables", "CONNMARK", 2, info([]uint32{0, all, all}, 0, 0, 1), rules.SaveMark{}},
		{"a shifted mark", "CONNMARK", 2, info([]uint32{0, all, all}, 0, 8, 1), rules.Unknown{Text: "target CONNMARK revision 2"}},
		{"--save-mark of some bits", "CONNMARK", 1, info([]uint32{0, all, 15}, 1), rules.Unknown{Text: "target CONNMARK revision 1"}},
		{"--set-mark", "CONNMARK", 1, info([]uint32{0, all, all}, 0), rules.Unknown{Text: "target CONNMARK revision 1"}},
		{"a connmark cut short", "CONNMARK", 2, info([]uint32{0, all, all}, 0, 0), rules.Unknown{Text: "target CONNMARK revision 2"}},
		{"another target", "LOG", 0, nil, rules.Unknown{Text: "target LOG revision 0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, xt.Target(tc.target, tc.revision, tc.info)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("owner", uint32(1), info([]uint32{1, 2, 3, 4}, 3, 2))
	f.Add("mark", uint32(1), info([]uint32{1, 2}, 1))
	f.Add("connmark", uint32(1), info([]uint32{1, 2}, 1))
	f.Add("MARK", uint32(2), info([]uint32{1, 2}))
	f.Add("CONNMARK", uint32(1), info([]uint32{0, all, all}, 1))
	f.Add("CONNMARK", uint32(2), info([]uint32{0, all, all}, 0, 0, 2))
	f.Fuzz(func(t *testing.T, name string, revision uint32, info []byte) {
		if len(xt.Match(name, revision, info)) == 0 || xt.Target(name, revision, info) == nil {
			t.Error("nothing")
		}
	})
}
