package xtables

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// An ID identifies a table.
type ID struct {
	Family rules.Family
	Name   string
}

// String returns a name like "iptables-legacy ip nat".
func (id ID) String() string { return fmt.Sprintf("iptables-legacy %s %s", id.Family, id.Name) }

// Tables returns the tables that exist in the namespace (nil: the current one), sorted by family
// and name. It creates no tables, unlike a getsockopt with the name of a table. On a kernel without
// iptables-legacy the result is empty. Tables needs root or CAP_DAC_OVERRIDE to read
// /proc/net/ip_tables_names and ip6_tables_names.
func Tables(ns *netns.NS) ([]ID, error) {
	var ids []ID
	err := ns.Do(func() error {
		for i := range layouts {
			names, err := layouts[i].tableNames()
			if err != nil {
				return err
			}
			for _, name := range names {
				ids = append(ids, ID{layouts[i].family, name})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the iptables-legacy tables: %w", err)
	}
	return ids, nil
}

// tableNames returns the sorted names of the family's tables in the namespace of the thread.
func (l *layout) tableNames() ([]string, error) {
	text, err := readProc("/proc/thread-self/net/" + l.namesFile)
	switch {
	case errors.Is(err, unix.EACCES):
		return nil, fmt.Errorf("%w (needs root or CAP_DAC_OVERRIDE)", err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	names := strings.Fields(string(text))
	slices.Sort(names)
	return names, nil
}

// readProc reads a file of /proc. It avoids [os.ReadFile], which initializes the runtime's network
// poller and so takes twice as long in a short-lived process.
func readProc(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var text []byte
	var buf [512]byte
	for {
		n, err := unix.Read(fd, buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return text, nil
		default:
			text = append(text, buf[:n]...)
		}
	}
}

// A Reader reads tables up to a total cost of 32 MiB, where each entry costs its size and 192
// bytes: about 90,000 short rules, or 50,000 rules of kube-proxy. It repeats reads for at most 3 s
// if other processes change the tables. The zero value is ready to use. A Reader is not safe for
// concurrent use.
type Reader struct {
	cost     int
	deadline time.Time // set by the first read
}

// Read returns a table of the namespace (nil: the current one). It never creates a table. If the
// table does not exist, the error wraps [fs.ErrNotExist]. If this table and the tables that the
// reader has already returned exceed the limit, the error wraps [ErrTooLarge]. Read needs
// CAP_NET_ADMIN in the user namespace that owns the network namespace, and the privileges of
// [Tables].
func (r *Reader) Read(ns *netns.NS, family rules.Family, name string) (*Table, error) {
	var t *Table
	err := withTable(ns, "read", ID{family, name}, func(c *conn) error {
		b, err := r.readExisting(c)
		if err == nil {
			t, err = c.decode(b)
		}
		return err
	})
	return t, err
}

// readExisting is like readBlob, but requires that the table exists, and counts its cost.
func (r *Reader) readExisting(c *conn) (*blob, error) {
	names, err := c.tableNames()
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(names, c.table):
		return nil, fs.ErrNotExist
	}
	if r.deadline.IsZero() {
		r.deadline = c.deadline
	}
	c.maxCost, c.deadline = maxCost-r.cost, r.deadline
	b, err := c.readBlob()
	if err == nil {
		r.cost += costOf(b.offsets, len(b.entries))
	}
	return b, err
}

// Read returns a table; see [Reader.Read].
func Read(ns *netns.NS, family rules.Family, name string) (*Table, error) {
	return new(Reader).Read(ns, family, name)
}

// Open is like [Read], but creates the table if it does not exist, with empty built-in chains and
// policy accept. The kernel loads the module of the table if necessary, and from then on the
// packets of the namespace traverse the table. If the kernel does not support the table, the error
// wraps [fs.ErrNotExist].
func Open(ns *netns.NS, family rules.Family, name string) (*Table, error) {
	var t *Table
	err := withTable(ns, "open", ID{family, name}, func(c *conn) (err error) {
		t, err = c.read() // IPT_SO_GET_INFO creates the table
		return err
	})
	return t, err
}

// read returns the table. The kernel creates the table if it does not exist.
func (c *conn) read() (*Table, error) {
	b, err := c.readBlob()
	if err != nil {
		return nil, err
	}
	return c.decode(b)
}

func (c *conn) decode(b *blob) (*Table, error) {
	t, err := decode(c.layout, c.table, b)
	if err != nil {
		return nil, fmt.Errorf("unexpected table layout: %w", err)
	}
	return t, nil
}
