package watch

import (
	"testing"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
)

// FuzzMessage decodes arbitrary messages: nothing is decoded from an invalid message, and a process
// name is not longer than the datagram.
func FuzzMessage(f *testing.F) {
	f.Add([]byte{
		44, 0, 0, 0, 15, 10, 0, 0, 1, 0, 0, 0, 56, 17, 0, 0, 0, 0, 0, 2, 8, 0, 1, 0, 0, 0, 0, 2, 8,
		0, 2, 0, 0, 0, 17, 56, 8, 0, 3, 0,
		110, 102, 116, 0,
	}, []byte{20, 0, 0, 0, 0, 0, 0, 0, 14, 1, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{
		28, 0, 0, 0, 89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 1, 0, 5, 0, 0, 0,
	}, []byte{})
	f.Fuzz(func(t *testing.T, datagram, control []byte) {
		m, _, err := nlmsg.Next(datagram)
		if err != nil && m.Body != nil {
			t.Errorf("message %+v with the error %v, want no message with an error", m, err)
		}
		var e Event
		e.readGeneration(m.Body)
		if len(e.Process) > len(datagram) {
			t.Errorf("process name %q is longer than the datagram of %d bytes", e.Process,
				len(datagram))
		}
		if id, ok := nsid(m.Body); !ok && id != 0 {
			t.Errorf("id %d of a message without an id, want 0", id)
		}
		origin(control)
	})
}
