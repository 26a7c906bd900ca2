package job

// What a restore does with the target's schema registry.
const (
	// RegistryNone leaves it alone. It is the default.
	RegistryNone = "none"
	// RegistryRestore registers the schemas that the restored records name: under their own ids where these are free, else under others, which then take the
	// old ids' place in the records.
	RegistryRestore = "restore"
	// RegistrySameIDs refuses a restore that would have to change ids.
	RegistrySameIDs = "same-ids"
)

// RegistryPlan is what becomes of the writer schemas that the restored records name, and of those that they refer to. It is fixed before the first
// record is written.
type RegistryPlan struct {
	URL     string           `json:"url"`
	Import  bool             `json:"import"`  // the registry takes ids (it has an import mode); else it gives its own
	Schemas []RegistrySchema `json:"schemas"` // each after those that it refers to
	// Rewritten is archived topic → the ids that change in its records; their bytes are not those of the archive then.
	Rewritten map[string][]IDChange `json:"rewritten,omitempty"`
	Levels    []RegistryLevel       `json:"levels,omitempty"` // of the subjects that had a compatibility level of their own, ascending
	Notes     []string              `json:"notes,omitempty"`
}

// What is done with a schema.
const (
	SchemaKept       = "keep"     // the registry has it
	SchemaImported   = "import"   // under the id To
	SchemaRegistered = "register" // under an id that the registry gives
)

// RegistrySchema is one schema of a RegistryPlan.
type RegistrySchema struct {
	ID          int    `json:"id"` // in the archive; −1: none, records name it by GUID, or only other schemas refer to it
	GUID        string `json:"guid,omitempty"`
	Fingerprint string `json:"fingerprint"` // tells schemas of one id apart
	Type        string `json:"type"`
	Subject     string `json:"subject"`
	Version     int    `json:"version"` // in the archive; 0: not known
	Action      string `json:"action"`
	To          int    `json:"to"`        // its id at the target; −1: not known before it is registered
	ToVersion   int    `json:"toVersion"` // 0: not known
	Why         string `json:"why,omitempty"`
}

// What is done with a subject's compatibility level.
const (
	LevelKept    = "keep"    // the subject has it
	LevelSet     = "set"     // the subject has none of its own
	LevelLeft    = "leave"   // the subject has another
	LevelRefused = "refused" // the subject has none of its own, and the registry does not take it
)

// RegistryLevel is the compatibility level of one subject of a RegistryPlan.
type RegistryLevel struct {
	Subject string `json:"subject"`
	Level   string `json:"level"` // in the archive
	Action  string `json:"action"`
	Own     string `json:"own,omitempty"` // what it has at the target, where that is left
}

// IDChange is one id in records and what it becomes; −1: what the registry will give.
type IDChange struct {
	From int `json:"from"`
	To   int `json:"to"`
}
