package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// TempPrefix returns how the names of the temporary files begin that [WriteNoSync] creates in the
// directory of the file at path. A killed process leaves its temporary file behind.
func TempPrefix(path string) string { return "." + filepath.Base(path) + "." }

// WriteNoSync replaces the file at path with a new file of mode 0600. It does not sync: use it for
// state that is useless after a crash of the node, such as records of sandboxes.
func WriteNoSync(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), TempPrefix(path)) // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		removeErr := os.Remove(f.Name())
		if errors.Is(removeErr, fs.ErrNotExist) {
			removeErr = nil
		}
		return errors.Join(err, removeErr)
	}
	return nil
}
