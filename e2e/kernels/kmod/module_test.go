package kmod_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/e2e/kernels/kmod"
)

// object returns an ELF file with the section, and with the section that contains section names.
func object(t *testing.T, section, content string) []byte {
	t.Helper()
	const headerSize, sectionSize = 64, 64
	names := "\x00.shstrtab\x00" + section + "\x00"
	var out bytes.Buffer
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{
			0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT),
		},
		Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Shoff: uint64(headerSize + len(names) + len(content)), Ehsize: headerSize,
		Shentsize: sectionSize, Shnum: 3, Shstrndx: 1,
	}
	sections := []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: headerSize, Size: uint64(len(names))},
		{
			Name: uint32(strings.Index(names, section)), Type: uint32(elf.SHT_PROGBITS),
			Off: uint64(headerSize + len(names)), Size: uint64(len(content)),
		},
	}
	for _, part := range []any{header, []byte(names + content), sections} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func TestModuleNameAndDependencies(t *testing.T) {
	got, err := kmod.Describe(bytes.NewReader(object(t, ".modinfo",
		"license=GPL\x00alias=nft-expr-redir\x00alias=nft-expr-1-redir\x00"+
			"depends=nf-tables,nf_nat\x00name=nft_redir\x00")))
	want := kmod.Module{
		Name: "nft_redir", Aliases: []string{"nft_expr_redir", "nft_expr_1_redir"},
		Needs: []string{"nf_tables", "nf_nat"},
	}
	if err != nil || !cmp.Equal(want, got) {
		t.Errorf("module: error %v (-want +got)\n%s", err, cmp.Diff(want, got))
	}
}

func TestDescribeRejectsInvalidModules(t *testing.T) {
	for name, file := range map[string][]byte{
		"not an ELF file": []byte("#!/bin/sh"), "no .modinfo": object(t, ".text", ""),
		"no name": object(t, ".modinfo", "depends=\x00"),
	} {
		if m, err := kmod.Describe(bytes.NewReader(file)); err == nil {
			t.Errorf("%s: module %v, want an error", name, m)
		}
	}
}
