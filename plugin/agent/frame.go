package agent

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The maximum lengths of the messages in frames, in bytes. MaxBody is also the limit of package
// source for an answer of the API server.
const (
	MaxRequest = 64 << 10
	MaxAnswer  = 4 << 10
	MaxBody    = 8 << 20
)

// headLength is the size in bytes of a frame's head, which contains the length of the content.
const headLength = 4

// errTooLong is wrapped by the error of a frame that is longer than allowed.
var errTooLong = errors.New("too long")

// checkLength returns an error if the content of a frame is longer than limit bytes.
func checkLength(length uint64, limit int) error {
	if length > uint64(limit) {
		return fmt.Errorf("a frame of %d bytes: %w, at most %d are allowed", length, errTooLong, limit)
	}
	return nil
}

// ReadFrame reads a frame and returns its content. Content of more than limit bytes is an error.
// Before the content has arrived, ReadFrame allocates at most 32 KiB. If the stream ends before the
// first byte, the error is [io.EOF]; if the stream ends later, the error is [io.ErrUnexpectedEOF].
func ReadFrame(r io.Reader, limit int) ([]byte, error) {
	var head [headLength]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if err := checkLength(uint64(length), limit); err != nil {
		return nil, err
	}
	// The length is untrusted: before data has arrived, allocate only what most pods need.
	const initialSize = 32 << 10
	frame := make([]byte, min(int(length), initialSize))
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, unexpectedEOF(err)
	}
	if rest := int64(length) - int64(len(frame)); rest > 0 {
		more, err := io.ReadAll(io.LimitReader(r, rest))
		if err == nil && int64(len(more)) < rest {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		frame = append(frame, more...)
	}
	return frame, nil
}

// unexpectedEOF replaces io.EOF with io.ErrUnexpectedEOF.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// AppendFrame appends a frame with the content to b.
func AppendFrame(b, content []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return append(b, content...)
}

// AppendJSON appends a frame with the JSON of a value to b. JSON of more than limit bytes is an
// error.
func AppendJSON(b []byte, value any, limit int) ([]byte, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	if err := checkLength(uint64(len(content)), limit); err != nil {
		return nil, err
	}
	return AppendFrame(b, content), nil
}
