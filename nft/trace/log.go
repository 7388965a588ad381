package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// A Log receives the traces of iptables-legacy in one network namespace. The kernel writes them to
// the log of netfilter for packets that a [Session] or the target TRACE marks for tracing. A Log
// makes nfnetlink_log the logger of the namespace and receives its group 0, which the kernel uses
// for traces. The kernel releases the group when the process ends for any reason. If the process is
// killed, nfnetlink_log remains the logger.
type Log struct {
	events *Receiver
	// isBound reports whether the socket receives the group.
	isBound bool
	// loggers contains the previous loggers of the families whose logger the Log has replaced.
	loggers map[uint8]string
	ns      *netns.NS

	closeOnce sync.Once
	closeErr  error
}

// Commands and attributes of linux/netfilter/nfnetlink_log.h.
const (
	logConfig = unix.NFNL_SUBSYS_ULOG<<8 | 1 // NFULNL_MSG_CONFIG
	logPacket = unix.NFNL_SUBSYS_ULOG << 8   // NFULNL_MSG_PACKET

	attrCommand   = 1 // NFULA_CFG_CMD
	attrMode      = 2 // NFULA_CFG_MODE
	attrThreshold = 5 // NFULA_CFG_QTHRESH
	attrFlags     = 6 // NFULA_CFG_FLAGS

	commandBind     = 1 // NFULNL_CFG_CMD_BIND
	commandUnbind   = 2 // NFULNL_CFG_CMD_UNBIND
	commandPFBind   = 3 // NFULNL_CFG_CMD_PF_BIND
	commandPFUnbind = 4 // NFULNL_CFG_CMD_PF_UNBIND
	modePacket      = 2 // NFULNL_COPY_PACKET
	flagConntrack   = 4 // NFULNL_CFG_F_CONNTRACK
)

const (
	logger        = "nfnetlink_log"
	loggerFile    = "/proc/sys/net/netfilter/nf_log/%d" // the number is the family
	groupsFile    = "/proc/thread-self/net/netfilter/nfnetlink_log"
	loggerMissing = "the kernel lacks nfnetlink_log, which traces of iptables-legacy need"
	// copiedBytes is the number of bytes of each packet that the kernel logs. It suffices for the
	// headers.
	copiedBytes = 128
)

// ErrLogBusy is the error of [OpenLog] if another process receives the group.
var ErrLogBusy = errors.New(
	"another process in this network namespace receives group 0 of nfnetlink_log")

// OpenLog starts to receive the traces of the namespace, or of the current namespace if ns is nil.
// buffer is as in [Options]. OpenLog needs CAP_NET_ADMIN in the user namespace that owns the
// network namespace.
func OpenLog(ns *netns.NS, buffer int) (*Log, error) {
	l := &Log{loggers: map[uint8]string{}, ns: ns}
	if err := ns.Do(func() error { return l.open(buffer) }); err != nil {
		return nil, errors.Join(fmt.Errorf("trace packets of iptables-legacy: %w", err), l.Close())
	}
	return l, nil
}

// open opens the log in the namespace of the thread.
func (l *Log) open(buffer int) (err error) {
	if l.events, err = NewReceiver(buffer); err != nil {
		return err
	}
	switch err := l.configure(unix.AF_UNSPEC, attribute(attrCommand, commandBind)); {
	case errors.Is(err, unix.EPERM) && groupIsReceived():
		return ErrLogBusy
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("receive group 0 of nfnetlink_log: %w (needs CAP_NET_ADMIN)", err)
	case err != nil:
		return fmt.Errorf(loggerMissing+": %w", err)
	}
	l.isBound = true
	mode := binary.BigEndian.AppendUint32(nil, copiedBytes)
	if err := l.configure(unix.AF_UNSPEC,
		netlink.Attribute{Type: attrMode, Data: append(mode, modePacket, 0)},
		attribute(attrThreshold, 0, 0, 0, 1)); err != nil { // send each packet immediately
		return fmt.Errorf("configure nfnetlink_log: %w", err)
	}
	// Kernels before 4.4, and kernels without CONFIG_NETFILTER_NETLINK_GLUE_CT, do not report the
	// connection.
	_ = l.configure(unix.AF_UNSPEC, attribute(attrFlags, 0, flagConntrack))
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		before, err := os.ReadFile(fmt.Sprintf(loggerFile, family))
		name := strings.TrimSpace(string(before))
		if err == nil && name == logger {
			continue
		}
		if err := l.configure(family, attribute(attrCommand, commandPFBind)); err != nil {
			return fmt.Errorf(loggerMissing+": %w", err)
		}
		l.loggers[family] = name
	}
	return nil
}

// groupIsReceived reports whether a process receives group 0 in the namespace of the thread. The
// kernel returns EPERM for a group of another process, as it does without CAP_NET_ADMIN
// (nfulnl_recv_config in net/netfilter/nfnetlink_log.c).
func groupIsReceived() bool {
	groups, _ := os.ReadFile(groupsFile) // after an error the reason for EPERM is unknown
	for line := range strings.Lines(string(groups)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "0" {
			return true
		}
	}
	return false
}

// attribute returns an attribute of a configuration message.
func attribute(kind uint16, data ...byte) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: data}
}

// configure sends a configuration message for group 0 and reads the answer. The kernel queues the
// answer before the send returns. configure discards the packets that were logged before the
// answer.
func (l *Log) configure(family uint8, attributes ...netlink.Attribute) error {
	data, err := netlink.MarshalAttributes(attributes)
	if err != nil {
		return err
	}
	// Logged packets have the sequence number 0, so that Exchange ignores them.
	m := nlmsg.NewRequest(logConfig, unix.NLM_F_ACK,
		append([]byte{family, unix.NFNETLINK_V0, 0, 0}, data...)...)
	return l.events.Control(func(fd int) error {
		buf := nlmsg.GetBuffer()
		defer buf.Release()
		_, err := nlmsg.Exchange(fd, buf[:], m, func(nlmsg.Message) error { return nil })
		return err
	})
}

// Read returns the queued events, at most about 4,096, and does not wait.
func (l *Log) Read() (Batch, error) {
	var b Batch
	err := l.events.Control(func(fd int) (err error) {
		b.Lost, err = l.events.Drain(fd, b.addLogged)
		return err
	})
	if errors.Is(err, unix.EAGAIN) {
		err = nil
	}
	return b, err
}

// addLogged decodes and adds the messages of a datagram, except events of the rules of [Chain].
func (b *Batch) addLogged(data []byte) {
	_, _ = nlmsg.Each(data, func(m nlmsg.Message) (bool, error) {
		if m.Type == logPacket {
			if e, ok := decodeLogged(m.Body); ok && e.Chain != Chain {
				b.Events = append(b.Events, e)
			}
		}
		return false, nil
	})
}

// Close releases the group and restores the previous loggers of the namespace.
func (l *Log) Close() error {
	l.closeOnce.Do(func() {
		if l.events == nil {
			return
		}
		for family, name := range l.loggers {
			l.closeErr = errors.Join(l.closeErr, l.restoreLogger(family, name))
		}
		if l.isBound {
			// Unbind explicitly: a process that is being started may have a copy of the socket, and
			// an open copy keeps the group. Ignore the error: if the buffer is full, the kernel
			// drops the answer.
			_ = l.configure(unix.AF_UNSPEC, attribute(attrCommand, commandUnbind))
		}
		l.closeErr = errors.Join(l.closeErr, l.events.Close())
	})
	return l.closeErr
}

// restoreLogger sets the logger of the family to the previous logger. If this fails, it removes the
// logger.
func (l *Log) restoreLogger(family uint8, name string) error {
	err := l.ns.Do(func() error {
		return os.WriteFile(fmt.Sprintf(loggerFile, family), []byte(name), 0)
	})
	if err == nil {
		return nil
	}
	// /proc/sys may be read-only. The kernel's default is no logger.
	return l.configure(family, attribute(attrCommand, commandPFUnbind))
}
