package schemas

import (
	_ "embed" // for the document
	"encoding/json"
	"fmt"

	"gopkg.in/yaml.v3"
)

//go:embed openapi.yaml
var openAPI []byte

// OpenAPI returns the OpenAPI document of the HTTP edge, as JSON.
func OpenAPI() ([]byte, error) {
	var document any
	if err := yaml.Unmarshal(openAPI, &document); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	return text, nil
}
