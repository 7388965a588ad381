package agent

import (
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// A Receiver reads from a connection, and receives the descriptors that come with the data.
type Receiver struct {
	conn *net.UnixConn
	fds  []int
}

// NewReceiver returns a receiver that has read nothing. The caller closes the connection.
func NewReceiver(c *net.UnixConn) *Receiver { return &Receiver{conn: c} }

// maxDescriptors is the number of descriptors that one read can receive: one more than a request
// has, so that the caller can refuse a request with several. The kernel closes further descriptors.
const (
	maxDescriptors = 2
	descriptorSize = 4 // in bytes, in a control message
)

// Read implements [io.Reader].
func (r *Receiver) Read(p []byte) (int, error) {
	var rights [unix.SizeofCmsghdr + descriptorSize*maxDescriptors]byte
	n, size, _, _, err := r.conn.ReadMsgUnix(p, rights[:])
	messages, parseErr := unix.ParseSocketControlMessage(rights[:size])
	for i := range messages {
		fds, rightsErr := unix.ParseUnixRights(&messages[i])
		r.fds = append(r.fds, fds...)
		parseErr = errors.Join(parseErr, rightsErr)
	}
	if parseErr == nil && errors.Is(err, io.EOF) {
		return n, io.EOF // readers compare the error with io.EOF, which the connection wraps
	}
	return n, errors.Join(err, parseErr)
}

// TakeDescriptors removes the received descriptors from the receiver and returns them. The caller
// must close them.
func (r *Receiver) TakeDescriptors() []int {
	fds := r.fds
	r.fds = nil
	return fds
}

// Close closes the descriptors that were not taken.
func (r *Receiver) Close() {
	for _, fd := range r.TakeDescriptors() {
		_ = unix.Close(fd)
	}
}
