// Package zds contains the messages of the ztunnel discovery service, generated from zds.proto. One
// packet of the socket is one message. To generate the code again after a change of zds.proto,
// install protoc (Debian: protobuf-compiler) and run go generate in this directory.
package zds

//go:generate sh -c "go build -o ../../../bin/tools/protoc-gen-go google.golang.org/protobuf/cmd/protoc-gen-go && PATH=../../../bin/tools:$PATH protoc --go_out=. --go_opt=paths=source_relative zds.proto"
