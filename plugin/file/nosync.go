package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// TempPrefix returns the prefix of the names of the temporary files that [WriteNoSync] creates for
// the file at path, in the same directory. A killed process leaves its temporary file behind.
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
