package segment

// Bounds of the format. A writer refuses to pass them and a reader refuses what passes them.
const (
	// blockBytes is the uncompressed size at which a writer ends a block. It is part of the format's determinism: another
	// value gives other bytes for the same records.
	blockBytes = 64 << 10

	// MaxBlockBytes bounds the uncompressed size of a block, and so the memory that a reader needs beyond the object.
	MaxBlockBytes = 1 << 30

	// MaxDatumBytes bounds the encoded size of one record: it must fit a block that was almost full before it.
	MaxDatumBytes = MaxBlockBytes - blockBytes

	// MaxHeaderBytes bounds the header, magic and sync marker included.
	MaxHeaderBytes = 256 << 20

	// maxMetaValue is how long a writer makes one metadata value, in bytes. Common Avro readers refuse 1 MiB and more.
	maxMetaValue = 512 << 10

	maxTextBytes = 4 << 10 // cluster id and topic id
)
