package archiver

import (
	"errors"

	"tapedeck.dev/tapedeck/archiver/connect"
	"tapedeck.dev/tapedeck/shared/service"
)

// ConnectorFile reads a Confluent S3 sink connector's JSON as the archiver's configuration.
func ConnectorFile(data []byte) ([]service.ForeignSetting, []string, error) {
	r, err := connect.Convert(data)
	if errors.Is(err, connect.ErrNot) {
		return nil, nil, service.ErrNotForeign
	}
	if err != nil {
		return nil, nil, err
	}
	out := make([]service.ForeignSetting, len(r.Settings))
	for i, s := range r.Settings {
		out[i] = service.ForeignSetting{Name: s.Name, Value: s.Value, From: s.From}
	}
	return out, r.Notes, nil
}
