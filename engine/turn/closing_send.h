/* closing_send.h -- when a family has a message about its windows to send (closing.h). By the turn. */
#ifndef TWI_TURN_CLOSING_SEND_H
#define TWI_TURN_CLOSING_SEND_H

struct tw_family;

/* To be called when something of the family has changed. When it has its next message follows from that. */
void twi_closing_appoint(struct tw_family *family);

#endif
