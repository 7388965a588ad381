package watch

import (
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzMessage reads messages that no kernel sends.
func FuzzMessage(f *testing.F) {
	f.Add([]byte{
		44, 0, 0, 0, 15, 10, 0, 0, 1, 0, 0, 0, 56, 17, 0, 0, 0, 0, 0, 2, 8, 0, 1, 0, 0, 0, 0, 2, 8, 0, 2, 0, 0, 0, 17, 56, 8, 0, 3, 0,
		110, 102, 116, 0,
	}, []byte{20, 0, 0, 0, 0, 0, 0, 0, 14, 1, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{28, 0, 0, 0, 89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 1, 0, 5, 0, 0, 0}, []byte{})
	f.Fuzz(func(t *testing.T, m, control []byte) {
		var e Event
		message(m).generation(&e)
		if len(e.Process) > len(m) {
			t.Errorf("%+v", e)
		}
		if id, ok := message(m).nsid(); !ok && id != 0 {
			t.Errorf("id %d although there is none", id)
		}
		if (message(m).kind() != 0 || message(m).sequence() != 0) && len(m) < unix.NLMSG_HDRLEN {
			t.Error("the kind or the number of a message without a header")
		}
		if err := message(m).errno(); err == nil && len(m) < bodyAt+4 {
			t.Error("all is well, says a message without a body")
		}
		origin(control)
	})
}
