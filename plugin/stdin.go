package plugin

import (
	"fmt"
	"io"
	"os"
	"time"
)

// maxStdin is far more than a runtime has to say. Most of that are the pod's annotations, of which Kubernetes allows 256 KiB.
const maxStdin = 16 << 20

// stdinPatience is how long a DEL waits for standard input that nobody had to read until then.
const stdinPatience = time.Second

// overheard is what package skel reads from standard input, for whom it refuses.
type overheard struct {
	done chan struct{} // closed when the others are known
	data []byte
	err  error
}

// overhear reads standard input, and leaves a pipe in its place: package skel reads [os.Stdin] and nothing else. That does not wait,
// since skel refuses an environment before it reads. Of more than maxStdin, or if reading fails, skel gets nothing.
func overhear() *overheard {
	o := &overheard{done: make(chan struct{})}
	from := os.Stdin
	out, in, err := os.Pipe()
	if err != nil {
		o.err = err
		close(o.done)
		return o
	}
	os.Stdin = out
	go func() {
		o.data, o.err = readBounded(from)
		close(o.done)
		// If nobody reads the pipe, that ends with the program.
		_, _ = in.Write(o.data)
		_ = in.Close()
	}()
	return o
}

// wait returns what was read, or an error if there is none or it takes longer than that.
func (o *overheard) wait(patience time.Duration) ([]byte, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-o.done:
		return o.data, o.err
	case <-timer.C:
		return nil, fmt.Errorf("standard input has not ended after %v", patience)
	}
}

// readBounded reads all there is, up to maxStdin.
func readBounded(from io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxStdin+1))
	if err == nil && len(data) > maxStdin {
		err = fmt.Errorf("more than %d MiB", maxStdin>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return data, nil
}
