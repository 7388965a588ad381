package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/plugin/file"
)

// Actual is the actual state of the node.
type Actual struct {
	// Files contains the files of the configuration directory that runtimes read, by name.
	Files map[string]File
	// PluginDirs contains the subdirectories of the configuration directory by name. A list loads
	// plugins from the subdirectory with the name of the list's network. With an empty name, it
	// loads them from the configuration directory itself.
	PluginDirs map[string]PluginDir
	// Entries contains the journal entries of files in the configuration directory, by name.
	Entries map[string]journal.Entry
	// Executables maps each of [Settings.ReplacedTypes] to true if the executable of this type
	// exists and is not the no-op executable.
	Executables map[string]bool
	// InstalledElement is the element that was written for the installed executable. It is nil if
	// the executable is [Verified], or if the element is unknown.
	InstalledElement json.RawMessage
}

// A File is the result of reading a configuration file.
type File struct {
	Data []byte
	Mode fs.FileMode
	Err  error // why the file cannot be read
	// Incomplete is set if the file became invalid recently: a program may be writing it.
	Incomplete bool
}

// A PluginDir is a directory from which a list may load plugins.
type PluginDir struct {
	// HasPlugins is set if the directory contains files with the extension .conf.
	HasPlugins bool
	// Err is the reason why runtimes that load plugins from the directory reject the list.
	Err error
}

// configurations returns the files except those with the given names.
func (found Actual) configurations(except ...string) []chain.File {
	var files []chain.File
	for name, file := range found.Files {
		if !slices.Contains(except, name) {
			files = append(files, chain.File{Name: name, Data: file.Data, Err: file.Err})
		}
	}
	return files
}

// hasPlugin reports whether the file contains the plugin.
func (found Actual) hasPlugin(name, plugin string) bool {
	file, ok := found.Files[name]
	if !ok || file.Err != nil {
		return false
	}
	if filepath.Ext(name) != ".conflist" {
		return chain.TypeOf(file.Data) == plugin
	}
	list, err := chain.Parse(file.Data)
	return err == nil && list.Has(plugin)
}

// The keys of the journal contain the names of files without their directories, because another
// process may mount the directories at other paths.
func confKey(name string) string { return "conf/" + name }
func binKey(name string) string  { return "bin/" + name }

// readConfigurations reads the configuration directory. It returns the values of [Actual.Files] and
// [Actual.PluginDirs].
func readConfigurations(dir string) (map[string]File, map[string]PluginDir, error) {
	if err := checkExists(dir); err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	files, pluginDirs := map[string]File{}, map[string]PluginDir{"": readPluginDir(dir)}
	for _, e := range entries {
		path, isLink := filepath.Join(dir, e.Name()), e.Type()&fs.ModeSymlink != 0
		if e.IsDir() || isLink && isDir(path) {
			pluginDirs[e.Name()] = readPluginDir(path)
		}
		if e.IsDir() || !chain.IsConfiguration(e.Name()) {
			continue
		}
		if file := readFile(path); !errors.Is(file.Err, fs.ErrNotExist) || isLink {
			files[e.Name()] = file
		}
	}
	return files, pluginDirs, nil
}

// maxConfigurationBytes is the maximum size of a configuration file in bytes. Configurations have a
// few kB. The agent reads all of them in each reconciliation, and keeps several in memory.
const maxConfigurationBytes = 1 << 20

// readFile reads a configuration file. Err of the result is set if the file is not a regular file,
// is larger than maxConfigurationBytes, or cannot be read.
func readFile(path string) File {
	info, err := os.Stat(path)
	if err != nil {
		if target, linkErr := os.Readlink(path); linkErr == nil {
			err = fmt.Errorf("it is a link to %s, which the agent cannot access: %w", target, err)
		}
		return File{Err: err}
	}
	if !info.Mode().IsRegular() {
		return File{Err: errors.New("not a regular file")}
	}
	data, err := file.ReadAtMost(path, maxConfigurationBytes)
	return File{Data: data, Mode: info.Mode().Perm(), Err: err}
}

// links returns the paths of the symbolic links among the configurations and Sluice's executables.
func links(s Settings) []string {
	paths := linkedConfigurations(s.CNIConfDir)
	for name := range s.Binaries {
		if path := filepath.Join(s.CNIBinDir, name); isLink(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// linkedConfigurations returns the paths of the symbolic links among the configurations.
func linkedConfigurations(dir string) []string {
	var paths []string
	entries, _ := os.ReadDir(dir) // each reconciliation reports the error
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 && chain.IsConfiguration(e.Name()) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

// isLink reports whether the file is a symbolic link.
func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// isDir reports whether the path leads to a directory.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// readPluginDir reads a directory of plugins like libcni, which rejects the list if one of the
// files with the extension .conf is invalid.
func readPluginDir(dir string) PluginDir {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return PluginDir{Err: err}
	}
	var found PluginDir
	for _, e := range entries {
		if e.IsDir() || filepath.Ext(e.Name()) != ".conf" {
			continue
		}
		found.HasPlugins = true
		file := readFile(filepath.Join(dir, e.Name()))
		_, err := chain.Read(chain.File{Name: e.Name(), Data: file.Data, Err: file.Err})
		if err != nil {
			found.Err = errors.Join(found.Err, fmt.Errorf("%s: %w", e.Name(), err))
		}
	}
	return found
}

// errGone is the error for a mounted directory that was removed on the node.
var errGone = errors.New(
	"it was removed on the node; the agent cannot access a directory that was created in its place")

// checkExists returns an error if a directory does not exist. The error wraps errGone if the
// directory is mounted and was removed on the node.
func checkExists(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && info.Sys().(*syscall.Stat_t).Nlink == 0 {
		err = &fs.PathError{Op: "read", Path: dir, Err: errGone}
	}
	return err
}
