package nlmsg

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// message encodes a message.
func message(msgType, flags uint16, sequence uint32, body ...byte) []byte {
	m := append(AppendHeader(nil, msgType, flags, sequence), body...)
	native.PutUint16(m[6:], flags) // without NLM_F_REQUEST
	SetLength(m)
	return append(m, make([]byte, Align(len(m))-len(m))...)
}

// errorMessage encodes a message of type NLMSG_ERROR: an acknowledgement if errno is 0.
func errorMessage(sequence uint32, errno unix.Errno) []byte {
	body := native.AppendUint32(nil, uint32(-int32(errno)))
	return message(unix.NLMSG_ERROR, 0, sequence,
		append(body, make([]byte, unix.NLMSG_HDRLEN)...)...)
}

func TestExchange(t *testing.T) {
	const get, list, set = 100, 101, 102
	request := func(msgType, flags uint16, sequence uint32) []byte {
		m := AppendHeader(nil, msgType, flags, sequence)
		SetLength(m)
		return m
	}
	end := message(unix.NLMSG_DONE, unix.NLM_F_MULTI, 7, 0, 0, 0, 0)
	for _, row := range []struct {
		name        string
		requests    []byte
		answers     [][]byte
		want        []uint16 // types of the messages that visit receives
		interrupted bool
		err         error
	}{
		{
			"a message without NLM_F_MULTI ends the answer", request(get, 0, 7),
			[][]byte{message(20, 0, 7), message(21, 0, 7)},
			[]uint16{20},
			false, nil,
		},
		{
			"a list ends with NLMSG_DONE", request(list, unix.NLM_F_DUMP, 7),
			[][]byte{
				message(20, unix.NLM_F_MULTI, 7),
				slices.Concat(message(21, unix.NLM_F_MULTI, 7, 1), end),
			},
			[]uint16{20, 21},
			false, nil,
		},
		{
			"an acknowledgement ends the answer to a request with NLM_F_ACK",
			request(set, unix.NLM_F_ACK, 7),
			[][]byte{message(20, 0, 7), errorMessage(7, 0)},
			[]uint16{20},
			false, nil,
		},
		{
			"an acknowledgement of a request without NLM_F_ACK is malformed", request(get, 0, 7),
			[][]byte{errorMessage(7, 0)},
			nil, false, ErrMalformed,
		},
		{
			"an error ends the answer", request(get, 0, 7),
			[][]byte{errorMessage(7, unix.ENOENT)},
			nil, false,
			unix.ENOENT,
		},
		{
			"an error may end a list", request(list, unix.NLM_F_DUMP, 7),
			[][]byte{message(unix.NLMSG_DONE, unix.NLM_F_MULTI, 7,
				native.AppendUint32(nil, ^uint32(unix.EIO)+1)...)},
			nil, false, unix.EIO,
		},
		{
			"answers to other requests are ignored", request(get, 0, 7),
			[][]byte{errorMessage(6, unix.EPERM), message(20, 0, 8), message(21, 0, 7)},
			[]uint16{21},
			false, nil,
		},
		{
			"a change of the list during the dump is reported", request(list, unix.NLM_F_DUMP, 7),
			[][]byte{message(20, unix.NLM_F_MULTI|unix.NLM_F_DUMP_INTR, 7), end},
			[]uint16{20},
			true, nil,
		},
		{
			"visit receives the error of an earlier request",
			slices.Concat(request(get, 0, 6), request(list, unix.NLM_F_DUMP, 7)),
			[][]byte{errorMessage(6, unix.ENOENT), message(20, unix.NLM_F_MULTI, 7), end},
			[]uint16{unix.NLMSG_ERROR, 20},
			false, nil,
		},
		{"an empty request is malformed", nil, nil, nil, false, ErrMalformed},
		{
			"a datagram shorter than a header is malformed", request(get, 0, 7),
			[][]byte{{1}},
			nil, false, ErrMalformed,
		},
		{
			"a datagram longer than the buffer is an error", request(get, 0, 7),
			[][]byte{message(20, 0, 7, make([]byte, 1<<10)...)},
			nil, false, errTruncated,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(pair[0])
			defer unix.Close(pair[1])
			for _, a := range row.answers {
				if _, err := unix.Write(pair[1], a); err != nil {
					t.Fatal(err)
				}
			}
			if len(row.answers) == 0 {
				_ = unix.Shutdown(pair[1], unix.SHUT_WR)
			}
			var got []uint16
			visit := func(m Message) error {
				got = append(got, m.Type)
				return nil
			}
			interrupted, err := Exchange(pair[0], make([]byte, 512), row.requests, visit)
			if !slices.Equal(got, row.want) || interrupted != row.interrupted ||
				!errors.Is(err, row.err) {
				t.Errorf("messages %v, interrupted %t, error %v; want %v, %t, %v",
					got, interrupted, err, row.want, row.interrupted, row.err)
			}
		})
	}
}

func TestExchangeReturnsTheErrorOfVisit(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if _, err := unix.Write(pair[1], message(20, 0, 7)); err != nil {
		t.Fatal(err)
	}
	want := errors.New("unexpected message")
	buf := make([]byte, 64)
	_, err = Exchange(pair[0], buf, message(100, 0, 7), func(Message) error { return want })
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// TestExchangeIgnoresMessagesOfProcesses sends a forged answer from another socket before the
// request.
func TestExchangeIgnoresMessagesOfProcesses(t *testing.T) {
	open := func() (fd int, port uint32) {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			t.Fatal(err)
		}
		own, err := unix.Getsockname(fd)
		if err != nil {
			t.Fatal(err)
		}
		return fd, own.(*unix.SockaddrNetlink).Pid
	}
	client, port := open()
	forger, _ := open()
	to := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: port}
	if err := unix.Sendto(forger, errorMessage(7, unix.EIO), 0, to); err != nil {
		t.Fatal(err)
	}
	request := AppendHeader(nil, unix.RTM_GETLINK, 0, 7)
	request = append(request, make([]byte, unix.SizeofIfInfomsg)...)
	native.PutUint32(request[unix.NLMSG_HDRLEN+4:], 1) // lo
	SetLength(request)
	got := uint16(0)
	_, err := Exchange(client, make([]byte, 64<<10), request, func(m Message) error {
		got = m.Type
		return nil
	})
	if got != unix.RTM_NEWLINK || err != nil {
		t.Errorf("message of type %d, error %v; want the kernel's RTM_NEWLINK", got, err)
	}
}

func TestAttributesAreDecodedByType(t *testing.T) {
	attribute := func(attrType uint16, value string) []byte {
		a := native.AppendUint16(nil, uint16(unix.NLA_HDRLEN+len(value)))
		return append(native.AppendUint16(a, attrType), value...)
	}
	a := Attributes(slices.Concat(
		attribute(1, "\x00\x00\x00\x09"),
		attribute(2|unix.NLA_F_NESTED, "lo\x00"), []byte{0}, // with padding
		attribute(3|unix.NLA_F_NET_BYTEORDER, "\x01\x02\x03\x04\x05\x06\x07\x08"),
		attribute(4, "x"), // at the end without padding
	))
	if n := a.Number(1); n != 9 {
		t.Errorf("number %d, want 9", n)
	}
	if n, ok := a.HostNumber(1); n != native.Uint32([]byte{0, 0, 0, 9}) || !ok {
		t.Errorf("number in host order %d, %t; want the bytes 0 0 0 9 and true", n, ok)
	}
	if n, ok := a.HostNumber(2); n != 0 || ok {
		t.Errorf("number %d, %t of a text, want 0 and false", n, ok)
	}
	if s := a.Text(2); s != "lo" || !a.HasText(2, "lo") || a.HasText(2, "l") {
		t.Errorf("text %q, want lo", s)
	}
	if n := a.Number64(3); n != 0x0102030405060708 || a.Number(3) != 0 || a.Number64(1) != 0 {
		t.Errorf("64-bit number %#x, 32-bit numbers %d and %d; want 0x102030405060708, 0 and 0", n,
			a.Number(3), a.Number64(1))
	}
	if s := a.Text(4); s != "x" || a.Get(5) != nil {
		t.Errorf("text %q, attribute 5 %v; want x and nil", s, a.Get(5))
	}
	if n := testing.AllocsPerRun(10, func() {
		a.Each(func(uint16, []byte) {})
		_, _ = a.Number(1), a.HasText(2, "lo")
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// FuzzDatagram decodes arbitrary datagrams: nothing is read beyond the datagram, every byte of a
// well-formed datagram is read, and Get returns the first value that Each passes for the type.
func FuzzDatagram(f *testing.F) {
	f.Add(slices.Concat(message(20, unix.NLM_F_MULTI, 7, 0, 0, 0, 0, 8, 0, 1, 0, 1, 2, 3, 4),
		errorMessage(7, unix.EPERM)), uint16(1))
	f.Add(message(unix.NLMSG_ERROR, unix.NLM_F_ACK_TLVS, 7,
		append(make([]byte, 20), 5, 0, 1, 0, 'x')...), uint16(1))
	f.Add([]byte{255, 255, 255, 255, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, uint16(0))
	f.Fuzz(func(t *testing.T, datagram []byte, attrType uint16) {
		datagram = slices.Clip(datagram)
		length := 0
		_, err := Each(datagram, func(m Message) (bool, error) {
			length += Align(unix.NLMSG_HDRLEN + len(m.Body))
			if s, err := m.Status(); err == nil && len(s.Text) > len(m.Body) {
				t.Errorf("explanation %q is longer than the body of %d bytes", s.Text, len(m.Body))
			}
			_ = m.doneError()
			body := Attributes(m.Body)
			var first []byte
			sum := 0
			wellFormed := body.Each(func(found uint16, value []byte) {
				sum += Align(unix.NLA_HDRLEN + len(value))
				if found == attrType && first == nil {
					first = value
				}
			})
			if wellFormed && sum != Align(len(body)) {
				t.Errorf("Each read attributes of %d bytes, want %d", sum, Align(len(body)))
			}
			if got := body.Get(attrType); !bytes.Equal(got, first) ||
				(got == nil) != (first == nil) {
				t.Errorf("attribute %d is %x by Get and %x by Each", attrType, got, first)
			}
			return false, nil
		})
		if err == nil && length != Align(len(datagram)) {
			t.Errorf("Each read messages of %d bytes, want %d", length, Align(len(datagram)))
		}
	})
}

// TestConnectDiscardsEarlierMessages covers a process that sends between bind and connect.
func TestConnectDiscardsEarlierMessages(t *testing.T) {
	open := func() int {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_USERSOCK)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	receiver, sender := open(), open()
	address, err := unix.Getsockname(receiver)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := unix.Sendto(sender, make([]byte, unix.NLMSG_HDRLEN), 0, address); err != nil {
			t.Fatal(err)
		}
	}
	if err := Connect(receiver); err != nil {
		t.Fatal(err)
	}
	if _, _, err := unix.Recvfrom(receiver, nil, unix.MSG_DONTWAIT); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("after Connect: error %v, want %v", err, unix.EAGAIN)
	}
	if err := unix.Sendto(sender, make([]byte, unix.NLMSG_HDRLEN), 0, address); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a later message: error %v, want %v", err, unix.ECONNREFUSED)
	}
}
