package xt

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// Flags of struct xt_socket_mtinfo1, 2 and 3. A third flag, XT_SOCKET_RESTORESKMARK, sets the mark
// of the packet.
const (
	socketTransparent = 1 << 0
	socketNoWildcard  = 1 << 1
)

// decodeSocket decodes a match of transparent sockets.
func decodeSocket(info []byte) ([]rules.Match, bool) {
	if len(info) < 1 {
		return nil, false
	}
	switch info[0] {
	case socketTransparent:
		return []rules.Match{rules.MatchSocket{}}, true
	case socketTransparent | socketNoWildcard:
		return []rules.Match{rules.MatchSocket{Kind: "nowildcard"}}, true
	}
	return nil, false
}

// SocketText returns the text of a match socket that the model does not represent. flags contains
// the bits of SocketOptions.
func SocketText(flags uint8) string {
	options := namesOfBits(uint32(flags), SocketOptions[:])
	return strings.Join(append([]string{"-m socket"}, options...), " ")
}

// SocketOptions are the options of the match socket in the order of their bits
// (XT_SOCKET_TRANSPARENT and others).
var SocketOptions = [...]string{"--transparent", "--nowildcard", "--restore-skmark"}
