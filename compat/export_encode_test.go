package compat

// EncodeRule and DecodeTable convert between the model and the kernel's structures.
var (
	EncodeRule      = encodeRule
	EncodeForKernel = encodeForKernel
	DecodeTable     = decode
)
