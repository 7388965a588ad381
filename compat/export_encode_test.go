package compat

// EncodeRule and DecodeTable are the two directions between the model and the kernel's tables.
var (
	EncodeRule      = encodeRule
	EncodeForKernel = encodeForKernel
	DecodeTable     = decode
)
