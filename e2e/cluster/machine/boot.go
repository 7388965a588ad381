package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A bootMessage is the first message of the monitor to init.
type bootMessage struct {
	Dir         string
	Spec        json.RawMessage
	Hierarchies []hierarchy
}

// Boot is init, the first process of a machine's namespaces. It reads the machine's description
// from in, and then executes the requests from in; the first one must be the request to boot. It
// returns at the end of in. When the process ends, the kernel kills all other processes of the
// machine.
func Boot(in io.Reader, out io.Writer) error {
	unix.CloseOnExec(lockFD)
	requests, replies := json.NewDecoder(in), json.NewEncoder(out)
	var message bootMessage
	if err := requests.Decode(&message); err != nil {
		return fmt.Errorf("read the machine's description: %w", err)
	}
	var spec Spec
	if err := json.Unmarshal(message.Spec, &spec); err != nil {
		return fmt.Errorf("read the machine's description: %w", err)
	}
	var s *supervisor
	for {
		var r request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var err error
		if r.Do == boot {
			s, err = bootMachine(message, spec)
		} else {
			err = s.execute(r)
		}
		if err := replies.Encode(replyFor(err)); err != nil {
			return err
		}
	}
}

// bootMachine sets up the machine in the namespaces of this process, and starts its services.
func bootMachine(message bootMessage, spec Spec) (*supervisor, error) {
	logs, err := openLogs(message.Dir, spec)
	if err != nil {
		return nil, err
	}
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return nil, fmt.Errorf("set the host name: %w", err)
	}
	if err := mountAll(filepath.Join(message.Dir, rootDir), spec.Binds,
		message.Hierarchies); err != nil {
		return nil, err
	}
	if err := configureNetwork(spec.Addresses, spec.Routes); err != nil {
		return nil, err
	}
	return supervise(spec, logs), nil
}
