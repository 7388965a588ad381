package nft

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// TestUnexpectedAnswerIsAnError covers malformed and unexpected answers. They must neither be
// accepted nor make the connection wait forever.
func TestUnexpectedAnswerIsAnError(t *testing.T) {
	var name messages
	name.addText(unix.NFTA_TABLE_NAME, rules.TableName)
	table := func(request []byte) []byte {
		return encodeAnswer(request, messageType(unix.NFT_MSG_NEWTABLE), 0,
			append([]byte{unix.NFPROTO_INET, 0, 0, 0}, name.buf...)...)
	}
	withLength := func(n uint32, m []byte) []byte {
		native.PutUint32(m, n)
		return m
	}
	for _, row := range []struct {
		name   string
		answer func(request []byte) []byte
		want   string
	}{
		{"three bytes", func(r []byte) []byte { return table(r)[:3] }, "not well-formed"},
		{"a header without its message", func(r []byte) []byte {
			return table(r)[:unix.NLMSG_HDRLEN]
		}, "not well-formed"},
		{"a truncated message", func(r []byte) []byte { return table(r)[:21] }, "not well-formed"},
		{"a message shorter than its header", func(r []byte) []byte {
			return withLength(8, table(r))
		}, "not well-formed"},
		{"a message of length 0", func(r []byte) []byte {
			return withLength(0, table(r))
		}, "not well-formed"},
		{"a message of length 4 GiB", func(r []byte) []byte {
			return withLength(1<<32-1, table(r))
		}, "not well-formed"},
		{"a message without family", func(r []byte) []byte {
			return encodeAnswer(r, messageType(unix.NFT_MSG_NEWTABLE), 0, 1)
		}, "not well-formed"},
		{"a chain instead of a table", func(r []byte) []byte {
			return encodeAnswer(r, messageType(unix.NFT_MSG_NEWCHAIN), 0, 1, 0, 0, 0)
		}, "not well-formed"},
		{"an acknowledgement instead of a table", func(r []byte) []byte {
			return encodeError(native.Uint32(r[8:]), 0, 0)
		}, "not well-formed"},
		{"an error without errno", func(r []byte) []byte {
			return encodeAnswer(r, unix.NLMSG_ERROR, 0, 1, 2, 3)
		}, "not well-formed"},
		{"a list that ends with an errno", func(r []byte) []byte {
			return encodeAnswer(r, unix.NLMSG_DONE, 0,
				native.AppendUint32(nil, uint32(1<<32-int64(unix.EIO)))...)
		}, "input/output error"},
		{"an answer to another request", func(r []byte) []byte {
			m := table(r)
			native.PutUint32(m[8:], 99)
			return m
		}, "does not answer"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := scripted(t, nil, func(request []byte, _ func([]byte) [][]byte) [][]byte {
				return [][]byte{row.answer(request)}
			})
			found, err := c.withShortTimeout(t).findSluiceTable()
			if found != nil || err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("table %v, error %v, want no table and an error that contains %q", found,
					err, row.want)
			}
		})
	}
}

// TestTheKernelsExplanationIsPartOfTheError covers the formats in which old and new kernels report
// errors.
func TestTheKernelsExplanationIsPartOfTheError(t *testing.T) {
	var tlv messages
	tlv.addText(unix.NLMSGERR_ATTR_MSG, "the reason")
	tx, err := Encode(example("sidecar-ipv4"))
	if err != nil {
		t.Fatal(err)
	}
	const seq = 5
	rejected := tx.descriptions[seq].String()
	// uncapped encodes an error with a copy of the rejected message, whose body has 24 bytes.
	uncapped := func(errno unix.Errno, flags uint16, rest ...byte) []byte {
		m := encodeError(seq, errno, flags, append(make([]byte, 24), rest...)...)
		native.PutUint32(m[unix.NLMSG_HDRLEN+4:], unix.NLMSG_HDRLEN+24)
		return m
	}
	for _, row := range []struct {
		name   string
		answer []byte
		want   string
	}{
		{
			"an explanation after the message's header",
			encodeError(seq, unix.EINVAL, unix.NLM_F_CAPPED|unix.NLM_F_ACK_TLVS, tlv.buf...),
			"invalid argument (the reason)",
		},
		{
			"an explanation after the whole message", uncapped(unix.EINVAL, unix.NLM_F_ACK_TLVS, tlv.buf...),
			"invalid argument (the reason)",
		},
		{
			"no explanation", encodeError(seq, unix.EINVAL, unix.NLM_F_CAPPED),
			"invalid argument",
		},
		{
			"an answer that ends within the copy of the message",
			uncapped(unix.EINVAL, unix.NLM_F_ACK_TLVS)[:unix.NLMSG_HDRLEN+4+unix.NLMSG_HDRLEN+4],
			"invalid argument",
		},
		{"a missing capability", encodeError(seq, unix.EPERM, 0), "the process needs CAP_NET_ADMIN"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			native.PutUint32(row.answer, uint32(len(row.answer)))
			c := scripted(t, nil, func([]byte, func([]byte) [][]byte) [][]byte {
				return [][]byte{row.answer}
			})
			err := c.commit(tx)
			var kernelErr *KernelError
			if !errors.As(err, &kernelErr) {
				t.Fatalf("error %v, want a KernelError", err)
			}
			if want := fmt.Sprintf("the kernel refuses to %s: ",
				rejected); !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error %v, want an error that begins with %q", err, want)
			}
			if !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want an error that contains %q", err, row.want)
			}
		})
	}
}

// TestErrorsThatConcernNoObjectAreClassified covers a missing permission and a kernel without
// nf_tables. The kernel reports a missing permission for the first message of a batch.
func TestErrorsThatConcernNoObjectAreClassified(t *testing.T) {
	tx, err := Encode(example("sidecar-ipv4"))
	if err != nil {
		t.Fatal(err)
	}
	c := scripted(t, nil, func([]byte, func([]byte) [][]byte) [][]byte {
		return [][]byte{encodeError(0, unix.EPERM, 0)}
	})
	if err := c.commit(tx); !IsNotPermitted(err) || IsNotSupported(err) {
		t.Errorf("error %v, want a permission error", err)
	}
	// Without nf_tables in the kernel, nfnetlink returns EINVAL for the unknown subsystem.
	c = scripted(t, nil, func(request []byte, _ func([]byte) [][]byte) [][]byte {
		return [][]byte{encodeError(native.Uint32(request[8:]), unix.EINVAL, 0)}
	})
	if _, err := c.findSluiceTable(); !IsNotSupported(err) ||
		!strings.Contains(err.Error(), FeatureTables.Option) {
		t.Errorf("error %v, want a not-supported error that names %s", err, FeatureTables.Option)
	}
}
