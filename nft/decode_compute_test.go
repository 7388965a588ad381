package nft

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// writeByteorder encodes the conversion of a register to network byte order.
func writeByteorder(e *encoder, length, size uint32) {
	writeNumbers(e, "byteorder", unix.NFTA_BYTEORDER_SREG, register, unix.NFTA_BYTEORDER_DREG,
		register, unix.NFTA_BYTEORDER_OP, unix.NFT_BYTEORDER_HTON, unix.NFTA_BYTEORDER_LEN, length,
		unix.NFTA_BYTEORDER_SIZE, size)
}

// TestConversionOfTheByteOrder checks that the decoder evaluates a conversion only for fields whose
// comparisons support network byte order. For other fields, and other conversions, the condition is
// unknown, and identified by the field and the conversion.
func TestConversionOfTheByteOrder(t *testing.T) {
	address := func(family rules.Family, length uint32) func(*encoder) {
		return func(e *encoder) {
			p := addrField(family, rules.Destination)
			p.length = length
			e.family(family)
			e.payload(p)
		}
	}
	meta := func(key expr.MetaKey) func(*encoder) { return func(e *encoder) { e.meta(key) } }
	fib := func(result, flags uint32) func(*encoder) {
		return func(e *encoder) {
			writeNumbers(e, "fib", unix.NFTA_FIB_DREG, register, unix.NFTA_FIB_RESULT, result,
				unix.NFTA_FIB_FLAGS, flags)
		}
	}
	const reverse = unix.NFTA_FIB_F_SADDR | unix.NFTA_FIB_F_IIF
	for _, row := range []struct {
		name         string
		load         func(*encoder)
		length, size uint32
		want         string
	}{
		{"mark", meta(unix.NFT_META_MARK), 4, 4, "meta mark 0x1 |"},
		{"user", meta(unix.NFT_META_SKUID), 4, 4, "meta skuid 1 |"},
		{"group", meta(unix.NFT_META_SKGID), 4, 4, "meta skgid 1 |"},
		{"conntrack mark", func(e *encoder) { e.ct(unix.NFT_CT_MARK) }, 4, 4, "ct mark 0x1 |"},
		{"mark, no complete word", meta(unix.NFT_META_MARK), 1, 2, "meta mark 0x1000000 |"},
		{"mark, two words", meta(unix.NFT_META_MARK), 4, 2, "reads(SIZE2 of meta mark 0x00000001) |"},
		{"mark, 64 bits", meta(unix.NFT_META_MARK), 8, 8, "reads(SIZE8 of meta mark 0x00000001)? |"},
		{
			"IPv4 address", address(rules.IPv4, 4), 4, 4,
			"meta nfproto ipv4 reads(SIZE4 of ip daddr 0x00000001) |",
		},
		{
			"part of an IPv6 address", address(rules.IPv6, 4), 4, 4,
			"meta nfproto ipv6 reads(SIZE4 of ip6 daddr 0x00000001) |",
		},
		{
			"state", func(e *encoder) { e.ct(unix.NFT_CT_STATE) }, 4, 4,
			"reads(SIZE4 of ct state 0x00000001) |",
		},
		{
			"status", func(e *encoder) { e.ct(unix.NFT_CT_STATUS) }, 4, 4,
			"reads(SIZE4 of ct status 0x00000001) |",
		},
		{"iif", meta(unix.NFT_META_IIF), 4, 4, "reads(SIZE4 of iif 0x00000001) |"},
		{"oif", meta(unix.NFT_META_OIF), 4, 4, "reads(SIZE4 of oif 0x00000001) |"},
		{
			"type of the source address", fib(unix.NFT_FIB_RESULT_ADDRTYPE, unix.NFTA_FIB_F_SADDR), 4,
			4, "reads(SIZE4 of fib saddr type 0x00000001) |",
		},
		{
			"type of the destination address",
			fib(unix.NFT_FIB_RESULT_ADDRTYPE, unix.NFTA_FIB_F_DADDR), 4, 4,
			"reads(SIZE4 of fib daddr type 0x00000001) |",
		},
		{
			"index of the reverse path", fib(unix.NFT_FIB_RESULT_OIF, reverse), 4, 4,
			"reads(SIZE4 of fib saddr . iif oif 0x00000001) |",
		},
		{
			"reverse path", fib(unix.NFT_FIB_RESULT_OIF, reverse|unix.NFTA_FIB_F_PRESENT), 4, 4,
			"reads(SIZE4 of fib saddr . iif oif 0x00000001) |",
		},
		{
			"ports", func(e *encoder) {
				e.meta(unix.NFT_META_L4PROTO)
				e.cmp(false, []byte{unix.IPPROTO_TCP})
				e.payload(bothPorts)
			}, 4, 4, "meta l4proto tcp reads(SIZE4 of th sport . th dport 0x00000001) |",
		},
	} {
		text := fmt.Sprintf("byteorder 3=%08x 4=%08x 5=%08x", unix.NFT_BYTEORDER_HTON, row.length,
			row.size)
		want := strings.ReplaceAll(row.want, fmt.Sprintf("SIZE%d", row.size), text)
		r := decodeRule(rules.Inet, nil, dumpedRule(func(e *encoder) {
			row.load(e)
			writeByteorder(e, row.length, row.size)
			e.cmp(false, []byte{0, 0, 0, 1})
		}))
		if got := formatRule(r); got != want {
			t.Errorf("%s: got %s, want %s", row.name, got, want)
		}
	}
}

// TestConversionToAnotherRegister checks that a conversion without a complete word has no effect,
// and that a converted part of a register depends on its earlier content, which the condition does
// not identify.
func TestConversionToAnotherRegister(t *testing.T) {
	const other = register + 1
	four, three := []byte{0, 0, 0, 1}, []byte{0, 0, 1}
	for _, row := range []struct {
		length, size uint32
		compared     []byte
		want         string
	}{
		{1, 2, four, "meta mark 0x1000000 |"},
		{3, 4, four, "meta mark 0x1000000 |"},
		{2, 2, four, "reads(CONVERSION of meta skuid 0x00000001)? |"},
		{3, 2, three, "reads(CONVERSION of meta skuid 0x000001)? |"},
		{4, 2, four, "reads(CONVERSION of meta skuid 0x00000001) |"},
		{4, 4, four, "meta skuid 1 |"},
	} {
		r := decodeRule(rules.Inet, nil, dumpedRule(func(e *encoder) {
			writeNumbers(e, "meta", unix.NFTA_META_DREG, other, unix.NFTA_META_KEY,
				unix.NFT_META_MARK)
			e.meta(unix.NFT_META_SKUID)
			writeNumbers(e, "byteorder", unix.NFTA_BYTEORDER_SREG, register,
				unix.NFTA_BYTEORDER_DREG, other, unix.NFTA_BYTEORDER_OP, unix.NFT_BYTEORDER_HTON,
				unix.NFTA_BYTEORDER_LEN, row.length, unix.NFTA_BYTEORDER_SIZE, row.size)
			e.writeExpression("cmp", func() {
				e.addNumber(unix.NFTA_CMP_SREG, other)
				e.addNumber(unix.NFTA_CMP_OP, unix.NFT_CMP_EQ)
				e.addData(unix.NFTA_CMP_DATA, row.compared)
			})
		}))
		want := strings.ReplaceAll(row.want, "CONVERSION", fmt.Sprintf(
			"byteorder 3=%08x 4=%08x 5=%08x", unix.NFT_BYTEORDER_HTON, row.length, row.size))
		if got := formatRule(r); got != want {
			t.Errorf("%d bytes of words of %d bytes: got %s, want %s", row.length, row.size, got, want)
		}
	}
}

// TestKernelConvertsOnlyCompleteWords verifies which bytes of the destination the kernel changes.
func TestKernelConvertsOnlyCompleteWords(t *testing.T) {
	before, source := []byte{1, 2, 3, 4}, []byte{5, 6, 7, 8}
	for _, row := range []struct {
		length, size uint32
		want         []byte
	}{
		{1, 2, before},
		{3, 4, before},
		{2, 2, []byte{6, 5, 3, 4}},
		{3, 2, []byte{6, 5, 3, 4}},
		{4, 4, []byte{8, 7, 6, 5}},
	} {
		ns := netnstest.New(t)
		c, err := nftables.New(nftables.WithNetNSFd(ns.FD()))
		if err != nil {
			t.Fatal(err)
		}
		table := c.AddTable(&nftables.Table{Name: "t", Family: nftables.TableFamilyIPv4})
		chain := c.AddChain(&nftables.Chain{
			Name: "c", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter,
		})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Immediate{Register: 1, Data: source},
			&expr.Immediate{Register: 2, Data: before},
			&expr.Byteorder{
				SourceRegister: 1, DestRegister: 2, Op: expr.ByteorderHton, Len: row.length,
				Size: row.size,
			},
			&expr.Cmp{Register: 2, Op: expr.CmpOpEq, Data: row.want},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}})
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		err = ns.Do(func() error {
			conn, err := net.Dial("udp4", "127.0.0.1:9")
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write([]byte("x"))
			return err
		})
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("%d bytes of words of %d bytes: a rule that drops if the destination is %x: "+
				"the packet was sent with the error %v, want EPERM", row.length, row.size, row.want, err)
		}
	}
}

// TestUnknownsWithDifferentConversionsDiffer compares unknown conditions and actions whose texts do
// not contain the differing part of the expressions.
func TestUnknownsWithDifferentConversionsDiffer(t *testing.T) {
	hash := func(e *encoder, length uint32) {
		e.family(rules.IPv4)
		e.payload(addrField(rules.IPv4, rules.Source))
		writeNumbers(e, "hash", unix.NFTA_HASH_SREG, register, unix.NFTA_HASH_DREG, register,
			unix.NFTA_HASH_LEN, length, unix.NFTA_HASH_MODULUS, 9, unix.NFTA_HASH_SEED, 1)
		e.cmp(false, hostBytes(1))
	}
	for _, row := range []struct {
		name string
		a, b func(*encoder)
	}{
		{"a mark that is set to a converted number", func(e *encoder) {
			e.meta(unix.NFT_META_SKUID)
			writeByteorder(e, 4, 4)
			e.setMeta(unix.NFT_META_MARK)
		}, func(e *encoder) {
			e.meta(unix.NFT_META_SKUID)
			e.setMeta(unix.NFT_META_MARK)
		}},
		{"the mask of a converted number", func(e *encoder) {
			e.meta(unix.NFT_META_SKUID)
			writeByteorder(e, 4, 4)
			e.bitwise(hostBytes(1), hostBytes(0))
			e.cmp(false, hostBytes(1))
		}, func(e *encoder) {
			e.meta(unix.NFT_META_SKUID)
			e.bitwise(hostBytes(1), hostBytes(0))
			e.cmp(false, hostBytes(1))
		}},
		{"a converted random number", func(e *encoder) {
			writeNumbers(e, "numgen", unix.NFTA_NG_DREG, register, unix.NFTA_NG_MODULUS, 1<<25,
				unix.NFTA_NG_TYPE, 1)
			writeByteorder(e, 4, 4)
			e.cmp(false, hostBytes(1))
		}, func(e *encoder) {
			writeNumbers(e, "numgen", unix.NFTA_NG_DREG, register, unix.NFTA_NG_MODULUS, 1<<25,
				unix.NFTA_NG_TYPE, 1)
			e.cmp(false, hostBytes(1))
		}},
		{"a hash of some bytes", func(e *encoder) { hash(e, 4) }, func(e *encoder) { hash(e, 2) }},
	} {
		a := unknownsOf(decodeRule(rules.Inet, nil, dumpedRule(row.a)))
		b := unknownsOf(decodeRule(rules.Inet, nil, dumpedRule(row.b)))
		if len(a) == 0 || len(b) == 0 || slices.Equal(a, b) {
			t.Errorf("%s: want different unknowns, got %q and %q", row.name, a, b)
		}
	}
}
