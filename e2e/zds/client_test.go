package zds_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"istio.io/istio/pkg/zdsapi"
)

// A ztunnel is a ZDS client with Istio's message types that records received messages.
type ztunnel struct {
	name   string
	conn   *net.UnixConn
	refuse string            // UID of the pod that the ztunnel rejects
	inodes map[uint64]string // pod names by inode of the network namespace
	// hold is a channel that delays acknowledgements until it is closed; nil for no delay.
	hold   atomic.Pointer[chan struct{}]
	record func(line string) // called for each message
	synced chan struct{}     // closed after the snapshot
	done   chan struct{}     // closed when no more messages are received
}

// connect connects a ztunnel and waits until it has received the snapshot.
func connect(t *testing.T, z *ztunnel, socket string) {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	z.conn, z.synced, z.done = conn, make(chan struct{}), make(chan struct{})
	if err := z.send(&zdsapi.ZdsHello{Version: zdsapi.Version_V1}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(z.done)
		var synced sync.Once
		for {
			snapshot, err := z.next()
			if err != nil {
				return
			}
			if snapshot {
				synced.Do(func() { close(z.synced) })
			}
		}
	}()
	t.Cleanup(z.close)
	select {
	case <-z.synced:
	case <-time.After(time.Minute):
		t.Fatalf("ztunnel %s: no snapshot within a minute", z.name)
	}
}

func (z *ztunnel) close() {
	_ = z.conn.Close()
	<-z.done
}

func (z *ztunnel) send(m proto.Message) error {
	data, err := proto.Marshal(m)
	if err == nil {
		_, err = z.conn.Write(data)
	}
	return err
}

// next receives and acknowledges a message. snapshot is true if the message is the last one of the
// snapshot.
func (z *ztunnel) next() (snapshot bool, err error) {
	data, rights := make([]byte, 4096), make([]byte, 256)
	n, m, _, _, err := z.conn.ReadMsgUnix(data, rights)
	if err != nil {
		return false, err
	}
	podName, err := z.namespace(rights[:m])
	if err != nil {
		return false, err
	}
	var request zdsapi.WorkloadRequest
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data[:n],
		&request); err != nil {
		return false, err
	}
	line, ack := "", &zdsapi.Ack{}
	switch p := request.GetPayload().(type) {
	case *zdsapi.WorkloadRequest_Add:
		info := p.Add.GetWorkloadInfo()
		line = fmt.Sprintf("add %s %s/%s %s, namespace of %s", p.Add.GetUid(), info.GetNamespace(),
			info.GetName(), info.GetServiceAccount(), podName)
		if p.Add.GetUid() == z.refuse {
			ack.Error = "cannot listen"
		}
	case *zdsapi.WorkloadRequest_Keep:
		line = "keep " + p.Keep.GetUid()
	case *zdsapi.WorkloadRequest_Del:
		line = "del " + p.Del.GetUid()
	case *zdsapi.WorkloadRequest_SnapshotSent:
		line, snapshot = "snapshot sent", true
	}
	if podName != "" && request.GetAdd() == nil {
		line += ", with a descriptor"
	}
	// Unknown fields were discarded, so they make the encoding differ.
	if second, err := proto.Marshal(&request); err != nil || !slices.Equal(second, data[:n]) {
		line += fmt.Sprintf(", as %x", data[:n])
	}
	z.record(z.name + " " + line)
	if hold := z.hold.Load(); hold != nil {
		<-*hold
	}
	return snapshot, z.send(&zdsapi.WorkloadResponse{
		Payload: &zdsapi.WorkloadResponse_Ack{Ack: ack},
	})
}

// namespace returns the name of the pod whose network namespace is in the ancillary data.
func (z *ztunnel) namespace(data []byte) (string, error) {
	if len(data) == 0 {
		return "", nil
	}
	messages, err := unix.ParseSocketControlMessage(data)
	if err != nil {
		return "", err
	}
	name := ""
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return "", err
		}
		for _, fd := range fds {
			var stat unix.Stat_t
			err = errors.Join(err, unix.Fstat(fd, &stat), unix.Close(fd))
			name += z.inodes[stat.Ino]
		}
		if err != nil {
			return "", err
		}
	}
	return name, nil
}
