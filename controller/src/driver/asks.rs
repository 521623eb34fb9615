//! Answers to the API's questions.

use keepline_engine::{conf::Policy, net::ListenerId, time::Now};

use super::{Driver, explain::explain, render};
use crate::api::{Ask, SwitchTo, model, model::ApiError};

impl Driver {
    /// Answers one question. A client that has gone away is no error.
    pub(super) fn ask(&mut self, now: Now, ask: Ask) {
        match ask {
            Ask::Status(reply) => drop(reply.send(self.status(now))),
            Ask::Softswitches(reply) => {
                drop(reply.send(model::Softswitches {
                    softswitches: self.groups(now),
                }));
            }
            Ask::Tunnels(reply) => drop(reply.send(model::Tunnels {
                tunnels: self.tunnels.views(now),
                segments: self.tunnels.segments(),
            })),
            Ask::Registrations(reply) => drop(reply.send(self.registrations(now))),
            Ask::Calls(reply) => drop(reply.send(self.calls())),
            Ask::Flows(reply) => drop(reply.send(self.flows())),
            Ask::Hops(reply) => drop(reply.send(self.hops())),
            Ask::Events(reply) => drop(reply.send(model::Events {
                events: self.journal.all(),
            })),
            Ask::Explain { object, reply } => {
                let explained =
                    explain((&self.gateway, &self.tunnels), &self.journal, now, &object);
                drop(reply.send(explained));
            }
            Ask::Switch { group, to, reply } => drop(reply.send(self.switch(now, &group, &to))),
            Ask::Drain { on, reply } => {
                self.gateway.drain(now, on);
                let done = if on {
                    "draining: new work is refused"
                } else {
                    "serving"
                };
                drop(reply.send(Ok(model::Done {
                    done: done.to_owned(),
                })));
            }
            Ask::Reload(reply) => drop(reply.send(self.reload())),
        }
    }

    fn groups(&self, now: Now) -> Vec<model::Group> {
        let local = self.gateway.conf().survivability.policy != Policy::Off;
        render::groups(&self.gateway.health().snapshot(now), local)
    }

    fn through(&self) -> model::Through {
        let (routed, up) = self.gateway.talk_count();
        let counted = self.gateway.counters();
        model::Through {
            routed: routed as u64,
            up: up as u64,
            passed: counted.passed,
            copies: counted.copies,
            copies_lost: counted.copies_lost,
        }
    }

    fn status(&self, now: Now) -> model::Status {
        let flows = self.data_path.flow_count();
        let config = &self.config.gateway;
        model::Status {
            gateway: model::GatewayStatus {
                name: config.name.clone(),
                role: "standalone".to_owned(),
                mode: config.mode.name().to_owned(),
                uptime_s: self.clock.age(now.mono).as_secs(),
                draining: self.gateway.draining(),
            },
            groups: self.groups(now),
            segments: self.tunnels.segments(),
            tunnels: self.tunnels.views(now),
            registrations: model::Active {
                active: self.gateway.registration_count(now) as u64,
            },
            calls: model::Active {
                active: self.gateway.call_count() as u64,
            },
            fastpath: render::fastpath(
                &self.data_path.attached(),
                &self.data_path.severed(),
                &self.data_path.counters(),
                flows as u64,
            ),
            listeners: self.listeners(),
            connections_refused: self.streams.refused(),
            through: self.through(),
            store: model::Store {
                failing: self.store_health.failing.clone(),
                lost: self.store_health.lost,
            },
            signalling: render::signalling(self.gateway.counters()),
            ..model::Status::default()
        }
    }

    fn listeners(&self) -> Vec<model::Listener> {
        let conf = self.gateway.conf();
        let all = (0_u16..).map(ListenerId).zip(&conf.listeners);
        let all = all.filter(|(_, on)| on.taken_by.is_none());
        all.map(|(id, on)| model::Listener {
            transport: on.transport.via().to_ascii_lowercase(),
            address: on.address.to_string(),
            interface: conf.links[usize::from(on.link.0)].name.clone(),
            connections: self.connections(id),
        })
        .collect()
    }

    fn registrations(&self, now: Now) -> model::Registrations {
        let mut registrations: Vec<_> = self
            .gateway
            .registrations(now)
            .map(|view| render::registration(&self.gateway, view))
            .collect();
        registrations.sort_by(|a, b| (&a.aor, &a.contact).cmp(&(&b.aor, &b.contact)));
        model::Registrations { registrations }
    }

    fn calls(&self) -> model::Calls {
        let mut calls: Vec<_> = self.gateway.calls().collect();
        calls.sort_by_key(|call| call.id);
        model::Calls {
            calls: calls
                .into_iter()
                .map(|view| render::call(&self.gateway, view))
                .collect(),
        }
    }

    fn flows(&self) -> model::Flows {
        let rows = self.data_path.flows().unwrap_or_else(|error| {
            tracing::warn!(%error, "flows cannot be read");
            Vec::new()
        });
        model::Flows {
            flows: render::flows(&self.gateway, rows, |index| self.interface_name(index)),
        }
    }

    fn hops(&self) -> model::Hops {
        let rows = self.data_path.hops().unwrap_or_else(|error| {
            tracing::warn!(%error, "hops cannot be read");
            Vec::new()
        });
        model::Hops {
            hops: render::hops(rows, |index| self.interface_name(index)),
        }
    }

    fn switch(&mut self, now: Now, group: &str, to: &SwitchTo) -> Result<model::Done, ApiError> {
        let server = match to {
            SwitchTo::Server(server) => server.as_str(),
            SwitchTo::Auto => "auto",
        };
        match self.gateway.switch(now, group, server) {
            Ok(()) => Ok(model::Done {
                done: format!("{group} now prefers {server}"),
            }),
            Err(error) => {
                let hint = "`keepline softswitches` lists groups and their servers";
                Err(ApiError::new("not_found", error.to_string(), hint))
            }
        }
    }
}
