package token

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/source"
)

// verify sends the plugin's requests with a kubeconfig. The errors have a [source.Kind]; a missing
// permission of the plugin is an error too.
func (o *Options) verify(ctx context.Context, kubeconfig []byte) error {
	f, err := memoryFile(kubeconfig)
	if err != nil {
		return fmt.Errorf("create a temporary file for the kubeconfig: %w", err)
	}
	defer func() { _ = f.Close() }()
	path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	api := source.NewAPIServer(source.Options{Kubeconfig: path, Dial: o.Dial})
	defer api.Close()
	err = api.Ready(ctx)
	if err == nil && o.Namespaces {
		if _, err = api.Namespace(ctx, "default"); source.IsNotFound(err) {
			err = nil
		}
	}
	if err != nil {
		return source.WithKind(source.KindOf(err),
			errors.New(strings.ReplaceAll(err.Error(), path, o.Kubeconfig)))
	}
	return nil
}

// memoryFile returns a file in memory, so that a killed process leaves no token on disk.
func memoryFile(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("kubeconfig", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "kubeconfig")
	if _, err := f.Write(content); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
