package api

// ModuleAddRequest enters a module into the catalogue after its bytes were put into the object store
// under their digest: subject module.add.
type ModuleAddRequest struct {
	Digest  string `json:"digest"`            // sha256 of the bytes, 64 hex digits
	Name    string `json:"name"`              // [a-z0-9][a-z0-9_-]*, at most 64
	Version string `json:"version,omitempty"` // default: the next whole number
	Reduce  string `json:"reduce,omitempty"`  // default reduce of jobs that name none
}

// Module is an entry of the catalogue.
type Module struct {
	Name      string   `json:"name"`
	Version   string   `json:"version"`
	Digest    string   `json:"digest"`
	Size      int      `json:"size"`
	Kind      string   `json:"kind"` // reactor, command
	Functions []string `json:"functions"`
	Reduce    string   `json:"reduce,omitempty"`
	Builtin   bool     `json:"builtin,omitempty"`
}

// ModuleRequest names a module: subjects module.show and module.remove.
type ModuleRequest struct {
	Module string `json:"module"` // name, name@version or digest
}

// ModulesReply answers module.list, by name and version.
type ModulesReply struct {
	Modules []Module `json:"modules"`
}
